"""The tool by which the model asks the user questions with suggested answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.events.server_requests import ServerRequestRefused
from treadle.engine.tools.registry import Output, ToolCall, ToolRefused, read_arguments
from treadle.model.base import ModelTool
from treadle.protocol.base import JsonValue
from treadle.protocol.server_requests import ITEM_TOOL_REQUEST_USER_INPUT
from treadle.protocol.tool import (
    ToolRequestUserInputOption,
    ToolRequestUserInputParams,
    ToolRequestUserInputQuestion,
    ToolRequestUserInputResponse,
)

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

IN_DEFAULT_MODE: Final = "default_mode_request_user_input"
"""The feature that lets the model ask outside plan mode too."""

_NO_ANSWER: Final = ToolRequestUserInputResponse(answers={})


class _Question(msgspec.Struct, rename="camel"):
    id: str
    header: str
    question: str
    options: list[ToolRequestUserInputOption] = []
    is_secret: bool = False


class _Arguments(msgspec.Struct):
    questions: list[_Question]


def _object(properties: dict[str, JsonValue]) -> JsonValue:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_OPTION: Final = _object(
    {
        "label": {"type": "string", "description": "The choice, in one to five words."},
        "description": {
            "type": "string",
            "description": "The effect of this choice, in one sentence.",
        },
    }
)
_QUESTION: Final = _object(
    {
        "id": {"type": "string", "description": "Identifier of the answer, in snake_case."},
        "header": {"type": "string", "description": "Short label, at most twelve characters."},
        "question": {"type": "string", "description": "The question, in one sentence."},
        "options": {
            "type": "array",
            "items": _OPTION,
            "description": "Two or three mutually exclusive answers, the best one first and marked "
            '"(Recommended)". The user can always enter another answer.',
        },
    }
)


class RequestUserInput:
    """Asks the user questions and waits for the answers."""

    name = "request_user_input"

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        modes = "Default or Plan" if self._asks_in_default_mode else "Plan"
        questions = {
            "type": "array",
            "items": _QUESTION,
            "description": "One question if possible, at most three.",
        }
        return {
            "type": "function",
            "name": self.name,
            "description": "Ask the user one to three short questions and wait for the answers. "
            f"Only available in {modes} mode.",
            "strict": False,
            "parameters": _object({"questions": questions}),
        }

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Ask the questions, and return the answers as JSON; empty if there are none."""
        settings = self._thread.settings_of(turn)
        mode = settings.mode().mode
        if self._thread.meta.parent_thread_id is not None:
            raise ToolRefused("request_user_input can only be used by the root thread")
        if mode != "plan" and not self._asks_in_default_mode:
            raise ToolRefused(f"request_user_input is unavailable in {mode.capitalize()} mode")
        arguments = read_arguments(call, _Arguments)
        if not arguments.questions:
            raise ToolRefused("request_user_input requires at least one question")
        if not all(question.options for question in arguments.questions):
            raise ToolRefused("request_user_input requires non-empty options for every question")
        limits = settings.request_deadline
        limit = None if limits is None else limits.deadline_ms
        params = ToolRequestUserInputParams(
            is_blocking=limit is None,
            item_id=call.id,
            questions=[_to_protocol(question) for question in arguments.questions],
            thread_id=turn.thread_id,
            turn_id=turn.id,
            auto_resolution_ms=limit,
        )
        try:
            answer = await self._thread.server_requests.send(
                ITEM_TOOL_REQUEST_USER_INPUT,
                params,
                turn=turn,
                key=call.id,
                flag="waitingOnUserInput",
                default=_NO_ANSWER,
                timeout_s=None if limit is None else limit / 1000,
            )
        except ServerRequestRefused:
            answer = _NO_ANSWER
        return msgspec.json.encode(answer).decode()

    @property
    def _asks_in_default_mode(self) -> bool:
        return self._thread.settings.is_enabled(IN_DEFAULT_MODE)


def _to_protocol(question: _Question) -> ToolRequestUserInputQuestion:
    return ToolRequestUserInputQuestion(
        header=question.header,
        id=question.id,
        question=question.question,
        is_other=True,
        is_secret=question.is_secret,
        options=question.options,
    )
