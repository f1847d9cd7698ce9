"""WINK tools as tools of the model: each call is a transaction, and each is told of.

The handler runs between a snapshot of the session with its resources and the answer. Whatever
does not succeed is rolled back, and the model is told why.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from weakincentives.clock import SYSTEM_CLOCK
from weakincentives.prompt import (
    RenderedPrompt,
    ToolContext,
    ToolResult,
    VisibilityExpansionRequired,
    collect_feedback,
)
from weakincentives.prompt import Tool as WinkTool
from weakincentives.runtime import ToolInvoked, restore_snapshot, tool_transaction
from weakincentives.serde import parse, schema

from treadle.client.tools import Image, Tool
from treadle.protocol.base import JsonValue
from treadle.protocol.tool import (
    DynamicToolCallOutputContentItem,
    DynamicToolCallParams,
    DynamicToolCallResponse,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
)

if TYPE_CHECKING:
    from treadle.wink.context import EvaluationContext

Serve = Callable[[DynamicToolCallParams], Awaitable[DynamicToolCallResponse]]

_NO_ARGUMENTS: Final[JsonValue] = {"type": "object", "properties": {}}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTool(Tool):
    """A tool whose calls are served with all that the server says of them."""

    serve: Serve

    async def run(self, params: DynamicToolCallParams) -> object:
        """Hand the call over."""
        return await self.serve(params)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What came of a call: for the model, and for the session."""

    text: str
    result: ToolResult[object]
    image: Image | None = None

    @classmethod
    def refusal(cls, text: str) -> ToolOutcome:
        """The call failed for this reason."""
        return cls(text, cast("ToolResult[object]", ToolResult.error(text)))


class Bridge:
    """The tools of one evaluation; calls are made one at a time, on the worker's thread."""

    def __init__(self, scene: EvaluationContext, rendered: RenderedPrompt[object]) -> None:
        self._scene = scene
        self._rendered = rendered
        self._tools = {tool.name: tool for tool in rendered.tools if tool.handler is not None}
        self.served: set[str] = set()
        """The calls that came here, by their ids."""
        self.expansion: VisibilityExpansionRequired | None = None
        """Set when a tool asked for sections to be shown in full: the prompt must be rendered
        anew."""

    def offered(self, serve: Serve) -> list[Tool]:
        """The tools as a thread is given them."""
        return [
            ServedTool(
                name=tool.name,
                description=tool.description,
                input_schema=_schema(tool),
                function=_never,
                serve=serve,
            )
            for tool in self._tools.values()
        ]

    def call(self, params: DynamicToolCallParams) -> DynamicToolCallResponse:
        """Serve one call."""
        scene = self._scene
        self.served.add(params.call_id)
        scene.beat()
        arguments = _arguments(params.arguments)
        answer = self._answer(params.tool, arguments)
        if scene.is_over():
            # Too late: the evaluation has gone on without it, and the session belongs to others.
            return _response([answer.text], answer)
        self._tell(params, arguments, answer)
        texts = [answer.text]
        if answer.result.success and self.expansion is None:
            feedback = collect_feedback(
                prompt=scene.prompt, session=scene.session, deadline=scene.deadline
            )
            texts += [feedback] if feedback else []
        scene.beat()
        return _response(texts, answer)

    def _answer(self, name: str, arguments: JsonValue) -> ToolOutcome:
        tool = self._tools.get(name)
        if tool is None:
            return ToolOutcome.refusal(f"Unknown tool: {name}")
        scene = self._scene
        resources = scene.prompt.resources.context
        with tool_transaction(scene.session, resources, tag=f"tool:{name}") as snapshot:
            answer = self._attempt(tool, arguments)
            is_void = not answer.result.success or self.expansion is not None
            if is_void and not scene.is_over():
                restore_snapshot(scene.session, resources, snapshot)
            return answer

    def _attempt(self, tool: WinkTool[JsonValue, JsonValue], arguments: JsonValue) -> ToolOutcome:
        try:
            return self._execute(tool, arguments)
        except VisibilityExpansionRequired as wish:
            self.expansion = wish
            keys = ", ".join(wish.section_keys)
            return ToolOutcome(f"Sections expanded: {keys}.", ToolResult(f"Expanded: {keys}", None))
        except (TypeError, ValueError) as error:
            return ToolOutcome.refusal(f"Validation error: {error}")
        except Exception as error:
            logger.exception("tool failed", extra={"tool": tool.name})
            return ToolOutcome.refusal(f"Error: {error}")

    def _execute(self, tool: WinkTool[JsonValue, JsonValue], arguments: JsonValue) -> ToolOutcome:
        scene = self._scene
        given: JsonValue = None
        if tool.params_type is not type(None):
            given = parse(tool.params_type, arguments, extra="forbid", coerce=False)
        context = ToolContext(
            prompt=scene.prompt,
            rendered_prompt=self._rendered,
            adapter=scene.adapter,
            session=scene.session,
            deadline=scene.deadline,
            heartbeat=scene.heartbeat,
            run_context=scene.run_context,
        )
        policies = scene.prompt.policies_for_tool(tool.name)
        for policy in policies:
            decision = policy.check(tool, given, context=context)
            if not decision.allowed:
                return ToolOutcome.refusal(decision.reason or "Denied by policy.")
        handler = tool.handler
        if handler is None:
            return ToolOutcome.refusal("Tool has no handler")
        result: ToolResult[object] = handler(given, context=context)
        if result.success:
            for policy in policies:
                policy.on_result(tool, given, result, context=context)
        return _answer_of(result)

    def _tell(
        self, params: DynamicToolCallParams, arguments: JsonValue, answer: ToolOutcome
    ) -> None:
        scene = self._scene
        scene.dispatch(
            ToolInvoked(
                prompt_name=scene.prompt_name,
                adapter=scene.adapter_name,
                name=params.tool,
                params=arguments,
                result=answer.result,
                session_id=scene.session_id,
                created_at=SYSTEM_CLOCK.utcnow(),
                rendered_output=answer.text,
                call_id=params.call_id,
                run_context=scene.run_context,
            )
        )


def _schema(tool: WinkTool[JsonValue, JsonValue]) -> JsonValue:
    return _NO_ARGUMENTS if tool.params_type is type(None) else schema(tool.params_type)


def _arguments(given: JsonValue) -> JsonValue:
    if isinstance(given, str):
        try:
            return json.loads(given)
        except ValueError:
            return given
    return {} if given is None else given


def _answer_of(result: ToolResult[object]) -> ToolOutcome:
    if isinstance(result.value, Image):
        return ToolOutcome(result.message, result, result.value)
    shown = "" if result.exclude_value_from_context else result.render()
    return ToolOutcome(shown or result.message, result)


def _response(texts: Sequence[str], answer: ToolOutcome) -> DynamicToolCallResponse:
    content: list[DynamicToolCallOutputContentItem] = [
        InputTextDynamicToolCallOutputContentItem(text) for text in texts
    ]
    if answer.image is not None:
        content.append(InputImageDynamicToolCallOutputContentItem(answer.image.url))
    return DynamicToolCallResponse(content, success=answer.result.success)


def _never(*_arguments: object) -> None:
    raise NotImplementedError("the call is served by the bridge")
