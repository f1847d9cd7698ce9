"""The caller's side of an evaluation: limits, rendering, events and the response."""

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
    """The arguments of `evaluate` besides the prompt."""

    session: SessionProtocol
    deadline: Deadline | None
    budget: Budget | None
    budget_tracker: BudgetTracker | None
    heartbeat: Heartbeat | None
    run_context: RunContext | None


class Evaluation(Generic[OutputT]):
    """One evaluation as its caller sees it; everything here runs on the caller's thread."""

    def __init__(
        self, adapter: CodexAppServerAdapter, prompt: Prompt[OutputT], options: EvaluateOptions
    ) -> None:
        """Compute the limits and render the prompt.

        Raises:
            PromptDeadlineExceeded: the deadline has passed.
        """
        self._prompt = prompt
        self.tracker = options.budget_tracker
        if self.tracker is None and options.budget is not None:
            self.tracker = BudgetTracker(options.budget)
        self.context = EvaluationContext(
            adapter=adapter,
            prompt=prompt,
            prompt_name=prompt.name or f"{prompt.ns}:{prompt.key}",
            session=options.session,
            deadline=_earliest(options, self.tracker),
            heartbeat=options.heartbeat,
            run_context=options.run_context,
        )
        left = self.context.seconds_left()
        if left is not None and left <= 0:
            raise PromptDeadlineExceeded(
                "the deadline passed before the prompt was sent",
                prompt_name=self.context.prompt_name,
                phase="request",
            )
        self.rendered: RenderedPrompt[OutputT] = prompt.render(session=options.session)
        self._dispatch_rendered()

    def _dispatch_rendered(self) -> None:
        context, prompt = self.context, self._prompt
        event = PromptRendered(
            prompt_ns=prompt.ns,
            prompt_key=prompt.key,
            prompt_name=prompt.name,
            adapter=context.adapter_name,
            session_id=context.session_id,
            render_inputs=(),
            rendered_prompt=self.rendered.text,
            created_at=SYSTEM_CLOCK.utcnow(),
            run_context=context.run_context,
            event_id=uuid4(),
        )
        context.dispatch(event)
        context.dispatch(
            RenderedTools(
                prompt_ns=prompt.ns,
                prompt_key=prompt.key,
                tools=tuple(extract_tool_schema(tool) for tool in self.rendered.tools),
                render_event_id=event.event_id,
                session_id=context.session_id,
                created_at=event.created_at,
            )
        )

    # -- environment

    def place(self, config: CodexAppServerClientConfig) -> tuple[str, str | None]:
        """Return the folder to work in, and the fingerprint of its workspace, if it is one.

        A configured folder is the tools' file system as well, unless the prompt has one.
        """
        filesystem = self._prompt.filesystem()
        if config.cwd is not None and filesystem is None and not self._has_filesystem():
            self._prompt.bind(resources={Filesystem: HostFilesystem(_root=config.cwd)})
        cwd = config.cwd
        if cwd is None and isinstance(filesystem, HostFilesystem):
            cwd = filesystem.root
        workspace = next(self._workspaces(), None)
        fingerprint = None if workspace is None else workspace.workspace_fingerprint
        return cwd or str(Path.cwd().resolve()), fingerprint

    def _has_filesystem(self) -> bool:
        try:
            return self.context.prompt.resources.get_optional(Filesystem) is not None
        except RuntimeError:
            return True  # it is created on demand

    def _workspaces(self) -> Iterator[WorkspaceSection]:
        for node in self._prompt.sections:
            if isinstance(node.section, WorkspaceSection):
                yield node.section

    def skills(self) -> SkillSet:
        """Return the prompt's skills.

        Raises:
            PromptEvaluationError: a skill is missing or invalid.
        """
        try:
            return SkillSet(self.rendered.skills)
        except SkillError as error:
            raise self._error(str(error), phase="request") from error

    @contextmanager
    def resources(self) -> Iterator[None]:
        """Enter the prompt's resources, unless the caller has entered them."""
        with contextlib.ExitStack() as stack:
            try:
                _ = self._prompt.resources.context
            except RuntimeError:
                stack.enter_context(self._prompt.resources)
            yield

    # -- result

    @property
    def _is_array(self) -> bool:
        return self.rendered.container == "array"

    def output_schema(self) -> JsonValue:
        """Return the schema of the last message; `None` if it is free text."""
        if self.rendered.output_type is None:
            return None
        return strict_schema(schema(self.rendered.output_type), is_array=self._is_array)

    def respond(self, outcome: Outcome) -> PromptResponse[OutputT]:
        """Parse the outcome and dispatch `PromptExecuted`.

        Raises:
            PromptEvaluationError: it does not have the prompt's output type.
        """
        context = self.context
        response = PromptResponse(
            prompt_name=context.prompt_name, text=outcome.text or None, output=self._output(outcome)
        )
        context.dispatch(
            PromptExecuted(
                prompt_name=context.prompt_name,
                adapter=context.adapter_name,
                result=response,
                session_id=context.session_id,
                created_at=SYSTEM_CLOCK.utcnow(),
                usage=outcome.usage,
                run_context=context.run_context,
            )
        )
        context.beat()
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
            prompt_name=self.context.prompt_name,
            phase=phase,
            provider_payload={"raw_text": text[:_RAW_CHARACTERS]} if text else None,
        )


def _earliest(options: EvaluateOptions, tracker: BudgetTracker | None) -> Deadline | None:
    budgets = [options.budget, None if tracker is None else tracker.budget]
    limits = [options.deadline, *(each.deadline for each in budgets if each is not None)]
    deadlines = [each for each in limits if each is not None]
    return min(deadlines, key=lambda each: each.remaining(), default=None)
