"""The caller's side of an evaluation: limits, rendering, events before and after, the response."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast
from uuid import uuid4

from weakincentives import Budget, BudgetTracker, Deadline
from weakincentives.adapters import PromptEvaluationError, PromptResponse
from weakincentives.adapters.tool_spec import extract_tool_schema
from weakincentives.clock import SYSTEM_CLOCK
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import (
    OutputParseError,
    Prompt,
    RenderedPrompt,
    WorkspaceSection,
    parse_structured_output,
)
from weakincentives.runtime import (
    Heartbeat,
    PromptExecuted,
    PromptRendered,
    RunContext,
    SessionProtocol,
)
from weakincentives.runtime.session.rendered_tools import RenderedTools
from weakincentives.serde import schema
from weakincentives.skills import SkillError

from treadle.protocol.base import JsonValue
from treadle.wink.config import CodexAppServerClientConfig
from treadle.wink.context import EvaluationContext
from treadle.wink.errors import PromptDeadlineExceeded
from treadle.wink.schema import restored, strict_schema
from treadle.wink.skills import SkillSet
from treadle.wink.spec import Outcome

if TYPE_CHECKING:
    from treadle.wink.adapter import CodexAppServerAdapter

OutputT = TypeVar("OutputT")

_RAW_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """What a caller of `evaluate` gives besides the prompt."""

    session: SessionProtocol
    deadline: Deadline | None
    budget: Budget | None
    budget_tracker: BudgetTracker | None
    heartbeat: Heartbeat | None
    run_context: RunContext | None


class Evaluation(Generic[OutputT]):
    """One evaluation as its caller sees it; everything here runs on the caller's thread."""

    def __init__(
        self, adapter: CodexAppServerAdapter, prompt: Prompt[OutputT], wishes: EvaluateOptions
    ) -> None:
        """Take the limits, and render the prompt.

        Raises:
            PromptDeadlineExceeded: there is no time left.
        """
        self._prompt = prompt
        self.tracker = wishes.budget_tracker
        if self.tracker is None and wishes.budget is not None:
            self.tracker = BudgetTracker(wishes.budget)
        self.scene = EvaluationContext(
            adapter=adapter,
            prompt=prompt,
            prompt_name=prompt.name or f"{prompt.ns}:{prompt.key}",
            session=wishes.session,
            deadline=_earliest(wishes, self.tracker),
            heartbeat=wishes.heartbeat,
            run_context=wishes.run_context,
        )
        left = self.scene.seconds_left()
        if left is not None and left <= 0:
            raise PromptDeadlineExceeded(
                "the deadline passed before the prompt was sent",
                prompt_name=self.scene.prompt_name,
                phase="request",
            )
        self.rendered: RenderedPrompt[OutputT] = prompt.render(session=wishes.session)
        self._tell_rendered()

    def _tell_rendered(self) -> None:
        scene, prompt = self.scene, self._prompt
        event = PromptRendered(
            prompt_ns=prompt.ns,
            prompt_key=prompt.key,
            prompt_name=prompt.name,
            adapter=scene.adapter_name,
            session_id=scene.session_id,
            render_inputs=(),
            rendered_prompt=self.rendered.text,
            created_at=SYSTEM_CLOCK.utcnow(),
            run_context=scene.run_context,
            event_id=uuid4(),
        )
        scene.dispatch(event)
        scene.dispatch(
            RenderedTools(
                prompt_ns=prompt.ns,
                prompt_key=prompt.key,
                tools=tuple(extract_tool_schema(tool) for tool in self.rendered.tools),
                render_event_id=event.event_id,
                session_id=scene.session_id,
                created_at=event.created_at,
            )
        )

    # -- where it takes place

    def place(self, config: CodexAppServerClientConfig) -> tuple[str, str | None]:
        """The folder to work in, and the fingerprint of the workspace that it is, if it is one.

        A folder that the configuration names is the tools' file system as well, unless the prompt
        brings one.
        """
        given = self._prompt.filesystem()
        if config.cwd is not None and given is None and not self._has_filesystem():
            self._prompt.bind(resources={Filesystem: HostFilesystem(_root=config.cwd)})
        cwd = config.cwd
        if cwd is None and isinstance(given, HostFilesystem):
            cwd = given.root
        found = next(self._workspaces(), None)
        fingerprint = None if found is None else found.workspace_fingerprint
        return cwd or str(Path.cwd().resolve()), fingerprint

    def _has_filesystem(self) -> bool:
        try:
            return self.scene.prompt.resources.get_optional(Filesystem) is not None
        except RuntimeError:
            return True  # it is made on demand

    def _workspaces(self) -> Iterator[WorkspaceSection]:
        for node in self._prompt.sections:
            if isinstance(node.section, WorkspaceSection):
                yield node.section

    def skills(self) -> SkillSet:
        """The skills that the prompt brings.

        Raises:
            PromptEvaluationError: one of them is not there, or is none.
        """
        try:
            return SkillSet(self.rendered.skills)
        except SkillError as error:
            raise self._error(str(error), phase="request") from error

    @contextmanager
    def resources(self) -> Iterator[None]:
        """Have the prompt's resources, whether the caller has entered them or not."""
        with contextlib.ExitStack() as stack:
            try:
                _ = self._prompt.resources.context
            except RuntimeError:
                stack.enter_context(self._prompt.resources)
            yield

    # -- what comes of it

    @property
    def _is_array(self) -> bool:
        return self.rendered.container == "array"

    def output_schema(self) -> JsonValue:
        """What the last word must look like; `None` if it is free."""
        if self.rendered.output_type is None:
            return None
        return strict_schema(schema(self.rendered.output_type), is_array=self._is_array)

    def respond(self, outcome: Outcome) -> PromptResponse[OutputT]:
        """Read the answer, and tell the session of it.

        Raises:
            PromptEvaluationError: it is not of the type that the prompt wants.
        """
        scene = self.scene
        response = PromptResponse(
            prompt_name=scene.prompt_name, text=outcome.text or None, output=self._output(outcome)
        )
        scene.dispatch(
            PromptExecuted(
                prompt_name=scene.prompt_name,
                adapter=scene.adapter_name,
                result=response,
                session_id=scene.session_id,
                created_at=SYSTEM_CLOCK.utcnow(),
                usage=outcome.usage,
                run_context=scene.run_context,
            )
        )
        scene.beat()
        return response

    def _output(self, outcome: Outcome) -> OutputT | None:
        kind = self.rendered.output_type
        if kind is None:
            return None
        text = restored(outcome.text, schema(kind), is_array=self._is_array)
        try:
            return cast("OutputT", parse_structured_output(text, self.rendered))
        except (OutputParseError, TypeError, ValueError) as error:
            raise self._error(
                f"Failed to parse structured output: {error}", phase="response", text=outcome.text
            ) from error

    def _error(self, message: str, *, phase: JsonValue, text: str = "") -> PromptEvaluationError:
        return PromptEvaluationError(
            message,
            prompt_name=self.scene.prompt_name,
            phase=phase,
            provider_payload={"raw_text": text[:_RAW_CHARACTERS]} if text else None,
        )


def _earliest(wishes: EvaluateOptions, tracker: BudgetTracker | None) -> Deadline | None:
    budgets = [wishes.budget, None if tracker is None else tracker.budget]
    limits = [wishes.deadline, *(each.deadline for each in budgets if each is not None)]
    given = [each for each in limits if each is not None]
    return min(given, key=lambda each: each.remaining(), default=None)
