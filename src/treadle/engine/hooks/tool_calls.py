"""How hooks see calls of tools: by names that they share with other agents, and by one input."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.engine.tools.registry import ToolCall
from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    from collections.abc import Sequence

SHELL: Final = "Bash"
PATCH: Final = "apply_patch"
EDITS: Final = ("Write", "Edit")

_SCRIPTS: Final = {"exec_command": "cmd", "shell_command": "command"}
_MAX_NAME: Final = 512


class HookedCall(Struct, frozen=True):
    """A call as hooks see it; `names` are those that a matcher may name it by."""

    call_id: str
    name: str
    input: JsonValue
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> Sequence[str]:
        """The names that a matcher may accept."""
        return [name[:_MAX_NAME] for name in (self.name, *self.aliases)]

    def refusal(self, reason: str) -> str:
        """Say to the model why the call does not run."""
        command = self.input.get("command") if isinstance(self.input, dict) else None
        if self.name in (SHELL, PATCH) and isinstance(command, str):
            return f"Command blocked by PreToolUse hook: {reason}. Command: {command}"
        return f"Tool call blocked by PreToolUse hook: {reason}. Tool: {self.name}"


class CannotRewrite(Exception):
    """The input of a hook does not fit the tool."""


class CannotRead(Exception):
    """The arguments of a call cannot be read, so hooks cannot decide about them."""


def hooked(call: ToolCall, names: Sequence[str] = ()) -> HookedCall:
    """Describe a call; `names` are other names of its tool. Free text has no arguments.

    Raises:
        CannotRead: the arguments cannot be read; a tool might understand them all the same.
    """
    # A server or a client can give a tool any name inside a namespace.
    own_name = call.name if call.namespace is None else None
    if own_name == PATCH:
        text = call.input if call.is_custom else _arguments(call).get("input", call.input)
        return HookedCall(call.id, PATCH, {"command": text}, EDITS)
    if own_name in _SCRIPTS:
        return _script(call, _arguments(call).get(_SCRIPTS[own_name]))
    if own_name == "shell":
        command = _arguments(call).get("command")
        words = command if isinstance(command, list) else []
        return _script(call, shlex.join(map(str, words)))
    aliases = ("Agent",) if own_name == "spawn_agent" else tuple(names)
    arguments: JsonValue = call.input
    if not call.is_custom:
        arguments = _arguments(call) or (call.input if call.input not in ("", "{}") else {})
    return HookedCall(call.id, call.flat_name, arguments, aliases)


def _script(call: ToolCall, script: JsonValue) -> HookedCall:
    text = script if isinstance(script, str) else call.input
    # The same edit can be made by a command, which hooks for edits have to see.
    aliases = (PATCH, *EDITS) if PATCH in text or "applypatch" in text else ()
    return HookedCall(call.id, SHELL, {"command": text}, aliases)


def _arguments(call: ToolCall) -> dict[str, JsonValue]:
    # As strict as the tools, which skip what they do not know, such as a number of many digits.
    try:
        found = msgspec.json.decode(call.input or "{}")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CannotRead(f"failed to parse function arguments: {error}") from error
    return found if isinstance(found, dict) else {}


def rewrite_call(call: ToolCall, updated: JsonValue) -> ToolCall:
    """Return the call with the input that a hook gave it.

    Raises:
        CannotRewrite: the input is not one for this tool.
    """
    if not isinstance(updated, dict):
        raise CannotRewrite("updatedInput must be an object")
    if call.namespace is None and call.name == PATCH:
        text = _command(updated)
        return replace(call, input=text if call.is_custom else _encoded({"input": text}))
    if call.namespace is None and call.name in _SCRIPTS:
        changed = {**_arguments(call), _SCRIPTS[call.name]: _command(updated)}
        return replace(call, input=_encoded(changed))
    if call.namespace is None and call.name == "shell":
        try:
            words = shlex.split(_command(updated))
        except ValueError as error:
            raise CannotRewrite(f"updatedInput.command cannot be split: {error}") from error
        return replace(call, input=_encoded({**_arguments(call), "command": words}))
    return replace(call, input=_encoded(updated))


def _command(updated: dict[str, JsonValue]) -> str:
    command = updated.get("command")
    if not isinstance(command, str) or updated.keys() != {"command"}:
        raise CannotRewrite("updatedInput must have `command`, a string, and nothing else")
    return command


def _encoded(value: JsonValue) -> str:
    return msgspec.json.encode(value).decode()


def response_of(call: HookedCall, output: JsonValue) -> JsonValue:
    """Return the output of a call as hooks see it: of a command, what it printed."""
    if call.name != SHELL or not isinstance(output, str):
        return output
    _, found, printed = output.partition("\nOutput:\n")
    if found:
        return printed
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        return output
    is_result = isinstance(document, dict) and isinstance(document.get("output"), str)
    return document["output"] if is_result else output
