"""Single answers of a thread's model outside its turns: a sample, an assessment, a plan."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.approval import GuardianRiskLevel, GuardianUserAuthorization
from treadle.protocol.base import Int64, Params, RequestId, Value
from treadle.protocol.model import ReasoningEffort
from treadle.protocol.source import ThreadSource


class ThreadSampleParams(Params, frozen=True):
    """Ask the model of a loaded thread one question that does not become a turn."""

    # The latest turn of the thread.
    expected_turn_id: str
    prompt: str
    thread_id: str
    # Accept a turn that has not ended.
    allow_in_progress_turn: bool = False
    disable_mcp: bool = False
    effort: ReasoningEffort | None = None
    interrupt_on_cancel: bool | None = None
    responsesapi_client_metadata: dict[str, str] | None = None
    thread_source: ThreadSource | None = None
    turn_trigger: str | None = None


class ThreadSampleResponse(Value, frozen=True):
    """The answer; without a text if the model called a tool instead."""

    response_id: str
    source_turn_id: str
    cached_input_tokens: Int64 | None = None
    input_tokens: Int64 | None = None
    output_tokens: Int64 | None = None
    text: str | None = None


class ThreadSampleCancelParams(Params, forbid_unknown_fields=True, frozen=True):
    """Cancel a sample by the id of its request."""

    request_id: RequestId


class ThreadSampleCancelResponse(Value, frozen=True):
    """The sample has ended; its request is answered with an error."""


class ThreadGuardianReviewParams(Params, frozen=True):
    """Let the guardian assess the last command that was injected into an idle thread."""

    thread_id: str


GuardianAssessmentOutcome = Literal["allow", "deny"]


class ThreadGuardianAssessment(Value, frozen=True):
    """What the guardian decided, and why."""

    outcome: GuardianAssessmentOutcome
    rationale: str
    risk_level: GuardianRiskLevel
    user_authorization: GuardianUserAuthorization


class ThreadGuardianReviewResponse(Value, frozen=True):
    """The assessment of a call; null if its policy or a grant requires none."""

    call_id: str
    assessment: ThreadGuardianAssessment | None = None


class ThreadPrepareApprovedPlanParams(Params, frozen=True):
    """Prepare an approved plan for the first turn of a new thread."""

    markdown: str
    thread_id: str
    # The plan as a file on the server's machine.
    attachment_path: str | None = None


class ThreadPrepareApprovedPlanResponse(Value, frozen=True):
    """The text with which the client starts the first turn."""

    prompt: str
