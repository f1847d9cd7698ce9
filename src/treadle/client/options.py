"""What threads and turns can be told, as keyword arguments; the protocol's names and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias, TypedDict

import msgspec
from msgspec import UnsetType

from treadle.client._runtime.reconnect import Backoff
from treadle.client.approvals import ApprovalPolicy
from treadle.client.tools import ToolLike
from treadle.protocol.aliases import rewrite
from treadle.protocol.base import JsonValue
from treadle.protocol.collaboration import CollaborationMode, MultiAgentMode
from treadle.protocol.environment import TurnEnvironmentParams
from treadle.protocol.extension import Budget
from treadle.protocol.input import (
    AdditionalContextEntry,
    LocalImageUserInput,
    TextUserInput,
    UserInput,
)
from treadle.protocol.model import (
    CyberAccessProgram,
    Personality,
    ReasoningEffort,
    ReasoningSummary,
)
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxMode, SandboxPolicy
from treadle.protocol.response_item import ResponseItem
from treadle.protocol.source import ThreadSource
from treadle.protocol.thread import (
    SelectedCapabilityRoot,
    ThreadHistoryMode,
    ThreadResumeInitialTurnsPageParams,
    ThreadStartSource,
)
from treadle.protocol.tool import TurnToolOutput


class ClientOptions(TypedDict, total=False):
    """What a client takes besides the place of its server."""

    token: str | None
    """The bearer token of a WebSocket server."""
    cwd: str | Path | None
    """Where a server that is started runs and threads work; the current folder if not given."""
    env: Mapping[str, str] | None
    """What a server that is started gets on top of this process's environment."""
    client_name: str
    client_version: str
    client_title: str
    model: str | None
    """For new threads; the server's configuration decides if not given."""
    approval_policy: AskForApproval | str | None
    """For new threads: `never` if nobody is there to decide, else `on-request`."""
    sandbox: SandboxMode | str | None
    """For new threads; `workspace-write` if not given."""
    experimental_api: bool
    """True if not given: without it, client tools and much else are refused."""
    approvals: ApprovalPolicy | None
    """Decides what the server asks about; `on_command_approval` and the others replace parts."""
    tools: Sequence[ToolLike]
    """For new threads: functions that the model may call."""
    request_timeout: float | None
    """Seconds that an answer may take; 30 if not given."""
    turn_silence: float | None
    """Seconds that a turn may be silent while nobody is asked anything; 300 if not given."""
    reconnect: bool | Backoff
    """Whether a broken line is mended; true for sockets, false for a process, if not given."""
    opt_out: Sequence[str]
    """Notifications that the server need not send."""


class _Settings(TypedDict, total=False):
    approval_policy: AskForApproval | str | None
    approvals_reviewer: ApprovalsReviewer | None
    base_instructions: str | None
    config: dict[str, JsonValue] | None
    cwd: str | Path | None
    developer_instructions: str | None
    model: str | None
    model_provider: str | None
    permissions: str | None
    persist_extended_history: bool
    runtime_workspace_roots: list[str] | None
    sandbox: SandboxMode | str | None
    service_tier: str | UnsetType | None


class ThreadOptions(_Settings, total=False):
    """What `start_thread` takes besides tools: the fields of `thread/start`."""

    allow_provider_model_fallback: bool
    budget: Budget | None
    daybreak_enabled: bool | None
    environments: list[TurnEnvironmentParams] | None
    ephemeral: bool | None
    experimental_raw_events: bool
    history_mode: ThreadHistoryMode | None
    metadata: dict[str, JsonValue] | None
    mock_experimental_field: str | None
    multi_agent_mode: MultiAgentMode | None
    personality: Personality | None
    project_id: str | None
    selected_capability_roots: list[SelectedCapabilityRoot] | None
    service_name: str | None
    session_start_source: ThreadStartSource | None
    thread_source: ThreadSource | None


class ResumeOptions(_Settings, total=False):
    """What `resume_thread` takes besides tools: the fields of `thread/resume`."""

    after_seq: int | None
    exclude_turns: bool
    history: list[ResponseItem] | None
    initial_turns_page: ThreadResumeInitialTurnsPageParams | None
    path: str | None
    personality: Personality | None


class ForkOptions(_Settings, total=False):
    """What `fork_thread` takes besides tools: the fields of `thread/fork`."""

    before_turn_id: str | None
    defer_goal_continuation: bool
    ephemeral: bool
    exclude_turns: bool
    experimental_prediction_mode: bool
    last_turn_id: str | None
    path: str | None
    thread_source: ThreadSource | None


class TurnOptions(TypedDict, total=False):
    """What a turn takes besides its input: the fields of `turn/start`."""

    additional_context: dict[str, AdditionalContextEntry] | None
    approval_policy: AskForApproval | str | None
    approvals_reviewer: ApprovalsReviewer | None
    budget: Budget | None
    client_user_message_id: str | None
    collaboration_mode: CollaborationMode | None
    cwd: str | Path | None
    cyber_access_program: CyberAccessProgram | None
    disabled_plugin_ids: list[str] | None
    effort: ReasoningEffort | None
    environments: list[TurnEnvironmentParams] | None
    model: str | None
    multi_agent_mode: MultiAgentMode | None
    output_schema: JsonValue
    parent_turn_id: str | None
    permissions: str | None
    personality: Personality | None
    responsesapi_client_metadata: dict[str, str] | None
    root_turn_id: str | None
    runtime_workspace_roots: list[str] | None
    sandbox_policy: SandboxPolicy | str | dict[str, JsonValue] | None
    service_tier: str | UnsetType | None
    service_tier_for_turn: str | None
    summary: ReasoningSummary | None
    tool_output: TurnToolOutput | None
    turn_trigger: str | None


class CommandOptions(TypedDict, total=False):
    """What a command takes besides its words: the fields of `command/exec`."""

    cwd: str | Path | None
    disable_output_cap: bool
    disable_timeout: bool
    env: dict[str, str | None] | None
    output_bytes_cap: int | None
    permission_profile: str | None
    sandbox_policy: SandboxPolicy | str | dict[str, JsonValue] | None
    timeout_ms: int | None


Input: TypeAlias = str | Path | UserInput | Sequence[str | Path | UserInput]
"""Text, the path of a picture, an input of the protocol, or several of them."""

_ALIASES: Final = {"approval_policy": "approvalPolicy", "sandbox": "sandbox"}


def inputs_of(given: Input) -> list[UserInput]:
    """What a turn is given, in the protocol's words.

    Raises:
        TypeError: it is nothing that a turn can be given.
    """
    parts: JsonValue = given
    is_many = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    return [_input(part) for part in (parts if is_many else [parts])]


def _input(part: JsonValue) -> UserInput:
    if isinstance(part, str):
        return TextUserInput(text=part)
    if isinstance(part, Path):
        return LocalImageUserInput(path=str(part))
    is_input = isinstance(part, msgspec.Struct)
    if not is_input:
        raise TypeError(f"a turn takes text, the Path of a picture or an input, not {part!r}")
    known: UserInput = part
    return known


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an option that nobody knows, which may be a known one misspelt.

    Raises:
        TypeError: there is one.
    """
    if unknown := sorted(set(given) - set(known)):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")


def spelled(options: JsonValue) -> dict[str, JsonValue]:
    """Options as the wire wants them: older and documented spellings, paths and policies."""
    made = {name: str(each) if isinstance(each, Path) else each for name, each in options.items()}
    for name, wire_name in _ALIASES.items():
        if isinstance(made.get(name), str):
            made[name] = _APPROVALS.get(made[name]) or rewrite({wire_name: made[name]})[wire_name]
    policy = made.get("sandbox_policy")
    if isinstance(policy, str | dict):
        document = rewrite({"sandboxPolicy": policy})["sandboxPolicy"]
        made["sandbox_policy"] = msgspec.convert(document, SandboxPolicy)
    return made


_APPROVALS: Final = {"always": "untrusted"}
