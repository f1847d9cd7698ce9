"""WINK tools as client tools: each call is a transaction and dispatches `ToolInvoked`.

The session and its resources are saved before the handler runs. A call that does not succeed is
rolled back, and the model receives the reason.
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
    """A tool whose calls are served with the full parameters of the server request."""

    serve: Serve

    async def run(self, params: DynamicToolCallParams) -> object:
        """Serve the call."""
        return await self.serve(params)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The outcome of a call, for the model and for the session."""

    text: str
    result: ToolResult[object]
    image: Image | None = None

    @classmethod
    def refusal(cls, text: str) -> ToolOutcome:
        """Return the outcome of a call that failed for this reason."""
        return cls(text, cast("ToolResult[object]", ToolResult.error(text)))


class Bridge:
    """The tools of one evaluation; calls run one at a time, on the worker's thread."""

    def __init__(self, context: EvaluationContext, rendered: RenderedPrompt[object]) -> None:
        self._context = context
        self._rendered = rendered
        self._tools = {tool.name: tool for tool in rendered.tools if tool.handler is not None}
        self.served: set[str] = set()
        """The ids of the calls that were served here."""
        self.expansion: VisibilityExpansionRequired | None = None
        """Set when a tool requested full sections: the prompt must be rendered again."""

    def client_tools(self, serve: Serve) -> list[Tool]:
        """Return the tools for a thread."""
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
        context = self._context
        self.served.add(params.call_id)
        context.beat()
        arguments = _arguments(params.arguments)
        answer = self._answer(params.tool, arguments)
        if context.is_over():
            # Too late: the evaluation is over and no longer owns the session.
            return _response([answer.text], answer)
        self._dispatch_invoked(params, arguments, answer)
        texts = [answer.text]
        if answer.result.success and self.expansion is None:
            feedback = collect_feedback(
                prompt=context.prompt, session=context.session, deadline=context.deadline
            )
            texts += [feedback] if feedback else []
        context.beat()
        return _response(texts, answer)

    def _answer(self, name: str, arguments: JsonValue) -> ToolOutcome:
        tool = self._tools.get(name)
        if tool is None:
            return ToolOutcome.refusal(f"Unknown tool: {name}")
        context = self._context
        resources = context.prompt.resources.context
        with tool_transaction(context.session, resources, tag=f"tool:{name}") as snapshot:
            answer = self._attempt(tool, arguments)
            is_void = not answer.result.success or self.expansion is not None
            if is_void and not context.is_over():
                restore_snapshot(context.session, resources, snapshot)
            return answer

    def _attempt(self, tool: WinkTool[JsonValue, JsonValue], arguments: JsonValue) -> ToolOutcome:
        try:
            return self._execute(tool, arguments)
        except VisibilityExpansionRequired as request:
            self.expansion = request
            keys = ", ".join(request.section_keys)
            return ToolOutcome(f"Sections expanded: {keys}.", ToolResult(f"Expanded: {keys}", None))
        except (TypeError, ValueError) as error:
            return ToolOutcome.refusal(f"Validation error: {error}")
        except Exception as error:  # user callback: the model receives the error
            logger.exception("tool failed", extra={"tool": tool.name})
            return ToolOutcome.refusal(f"Error: {error}")

    def _execute(self, tool: WinkTool[JsonValue, JsonValue], arguments: JsonValue) -> ToolOutcome:
        context = self._context
        params: JsonValue = None
        if tool.params_type is not type(None):
            params = parse(tool.params_type, arguments, extra="forbid", coerce=False)
        tool_context = ToolContext(
            prompt=context.prompt,
            rendered_prompt=self._rendered,
            adapter=context.adapter,
            session=context.session,
            deadline=context.deadline,
            heartbeat=context.heartbeat,
            run_context=context.run_context,
        )
        policies = context.prompt.policies_for_tool(tool.name)
        for policy in policies:
            decision = policy.check(tool, params, context=tool_context)
            if not decision.allowed:
                return ToolOutcome.refusal(decision.reason or "Denied by policy.")
        handler = tool.handler
        if handler is None:
            return ToolOutcome.refusal("Tool has no handler")
        result: ToolResult[object] = handler(params, context=tool_context)
        if result.success:
            for policy in policies:
                policy.on_result(tool, params, result, context=tool_context)
        return _answer_of(result)

    def _dispatch_invoked(
        self, params: DynamicToolCallParams, arguments: JsonValue, answer: ToolOutcome
    ) -> None:
        context = self._context
        context.dispatch(
            ToolInvoked(
                prompt_name=context.prompt_name,
                adapter=context.adapter_name,
                name=params.tool,
                params=arguments,
                result=answer.result,
                session_id=context.session_id,
                created_at=SYSTEM_CLOCK.utcnow(),
                rendered_output=answer.text,
                call_id=params.call_id,
                run_context=context.run_context,
            )
        )


def _schema(tool: WinkTool[JsonValue, JsonValue]) -> JsonValue:
    return _NO_ARGUMENTS if tool.params_type is type(None) else schema(tool.params_type)


def _arguments(raw: JsonValue) -> JsonValue:
    if isinstance(raw, str):
        try:
            return json.loads(raw)
        except ValueError:
            return raw
    return {} if raw is None else raw


def _answer_of(result: ToolResult[object]) -> ToolOutcome:
    if isinstance(result.value, Image):
        return ToolOutcome(result.message, result, result.value)
    rendered = "" if result.exclude_value_from_context else result.render()
    return ToolOutcome(rendered or result.message, result)


def _response(texts: Sequence[str], answer: ToolOutcome) -> DynamicToolCallResponse:
    content: list[DynamicToolCallOutputContentItem] = [
        InputTextDynamicToolCallOutputContentItem(text) for text in texts
    ]
    if answer.image is not None:
        content.append(InputImageDynamicToolCallOutputContentItem(answer.image.url))
    return DynamicToolCallResponse(content, success=answer.result.success)


def _never(*_arguments: object) -> None:
    raise NotImplementedError("the call is served by the bridge")
