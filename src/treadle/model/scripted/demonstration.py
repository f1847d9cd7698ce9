"""The default behaviour of the scripted model, without a script.

It has no state: everything comes from the request, so it behaves the same after a restart. It calls
only a few tools per turn, whatever they return.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from treadle.model.base import ModelItem, ModelRequest
from treadle.model.scripted.script import AnyStep, Spends, calls, plan, says, usage
from treadle.model.structured.schema import example
from treadle.protocol.base import JsonValue

MAX_CALLS: Final = 3
_MAX_QUOTE: Final = 2000
_SHELLS: Final = ("exec_command", "shell_command", "shell")
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
# Messages in the user's role that no user wrote.
_CONTEXT: Final = (
    "<environment_context>",
    "# AGENTS.md instructions",
    "<user_instructions>",
    "<turn_aborted>",
    "<skill>",
)
# Within one line: matching across empty lines would take quadratic time.
_RUN: Final = re.compile(r"^[^\S\n]*run:[^\S\n]*(?P<command>\S.*)$", re.IGNORECASE | re.MULTILINE)
_BACKTICKS: Final = re.compile(r"`(?P<command>[^`\n]+)`")
_GREETING: Final = (
    "I am Treadle's demonstration model: a script, not an AI model, so that everything "
    "else can be tried without a key. Configure a provider to talk to a real model."
)
_FIRST_STEP, _SECOND_STEP = "Run a command", "Report its output"


def demonstrate(request: ModelRequest) -> list[AnyStep]:
    """Return the next steps of a demonstration, from the history alone."""
    asked, since = _this_turn(request.input)
    if request.subagent == "compact":
        return [says(_summary_of(request.input)), _spent(request)]
    if request.output_schema is not None:
        fitting = msgspec.json.encode(example(request.output_schema)).decode()
        return [says(fitting), _spent(request)]
    if request.subagent == "review":
        return [says(_review()), _spent(request)]
    return [*_act(request, asked, since), _spent(request)]


def _act(request: ModelRequest, asked: str, since: Sequence[ModelItem]) -> list[AnyStep]:
    offered = {str(tool.get("name")) for tool in request.tools if tool.get("type") == "function"}
    called = [str(item.get("name")) for item in since if item.get("type") in _CALLS]
    shell = next((name for name in _SHELLS if name in offered), None)
    may_call = len(called) < MAX_CALLS
    # A goal that is never completed would start further turns for ever.
    if may_call and "<objective>" in asked and {"update_goal"} <= offered - set(called):
        return [says(_GREETING), calls("update_goal", {"status": "blocked"})]
    has_plan = "update_plan" in offered and shell is not None
    if has_plan and not called:
        return [
            says(_GREETING),
            plan(
                (_FIRST_STEP, "in_progress"),
                (_SECOND_STEP, "pending"),
                explanation="A small demonstration",
            ),
        ]
    if shell is not None and shell not in called and may_call:
        opening = [] if called else [says(_GREETING)]
        return [*opening, calls(shell, _shell_arguments(shell, _command_in(asked)))]
    if has_plan and may_call and called.count("update_plan") < 2:
        return [plan((_FIRST_STEP, "completed"), (_SECOND_STEP, "completed"))]
    return [_report(asked, since, request)]


def _report(asked: str, since: Sequence[ModelItem], request: ModelRequest) -> AnyStep:
    outputs = {
        str(item.get("call_id")): _text_of(item.get("output"))
        for item in since
        if item.get("type") in _OUTPUTS
    }
    found = [
        f"`{item['name']}` answered:\n\n```\n{_shorten(outputs[str(item['call_id'])])}\n```"
        for item in since
        if item.get("type") in _CALLS
        and item.get("name") != "update_plan"
        and str(item.get("call_id")) in outputs
    ]
    if found:
        text = "\n\n".join([*found, "That is all I can do: I am only a script."])
        return _speak(text)
    return _speak(
        f"{_GREETING}\n\nYou wrote {len(asked.split())} words ({len(asked)} characters): "
        f"{_shorten(asked)!r}. The request holds {len(request.input)} items and "
        f"{len(request.tools)} tools."
    )


def _speak(text: str) -> AnyStep:
    return says(text, deltas=re.findall(r"\S*\s*", text)[:-1])


def _this_turn(history: Sequence[ModelItem]) -> tuple[str, Sequence[ModelItem]]:
    """Return the user's last message, and the items since then."""
    for at in range(len(history) - 1, -1, -1):
        item = history[at]
        if item.get("type") == "message" and item.get("role") == "user":
            text = _text_of(item.get("content"))
            if not text.startswith(_CONTEXT):
                return text, history[at + 1 :]
    return "", history


def _text_of(content: JsonValue) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(part for part in parts if isinstance(part, str))


def _command_in(asked: str) -> str:
    found = _RUN.search(asked) or _BACKTICKS.search(asked)
    return found["command"].strip() if found else "ls"


def _shell_arguments(shell: str, command: str) -> dict[str, JsonValue]:
    if shell == "exec_command":
        return {"cmd": command}
    return {"command": command if shell == "shell_command" else ["bash", "-lc", command]}


def _summary_of(history: Sequence[ModelItem]) -> str:
    asked, _ = _this_turn(history)
    count = len(history)
    return f"A demonstration thread of {count} items. The user last wrote: {_shorten(asked)}"


def _review() -> str:
    explanation = f"Nothing was reviewed. {_GREETING}"
    return msgspec.json.encode(
        {
            "findings": [],
            "overall_correctness": "patch is correct",
            "overall_explanation": explanation,
            "overall_confidence_score": 0.0,
        }
    ).decode()


def _shorten(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}..."


def _spent(request: ModelRequest) -> Spends:
    """Return numbers for the usage display: words, since this model has no tokens."""
    words = len(request.instructions.split())
    words += sum(
        len(_text_of(item.get("content") or item.get("output")).split()) for item in request.input
    )
    return usage(words, 0)
