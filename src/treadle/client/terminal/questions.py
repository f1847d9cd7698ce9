"""The prompts of server requests: they show everything that a yes allows, without ambiguity.

Text from the model or a server appears only in marked rows, with control characters as escapes. The
client's own lines have no mark, so that quoted text cannot imitate them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from treadle.client.approvals import CommandApproval, FileChangeApproval
from treadle.protocol.approval import CommandExecutionRequestApprovalParams
from treadle.protocol.base import JsonValue
from treadle.protocol.elicitation import (
    McpServerElicitationRequestParams,
    UrlMcpServerElicitationRequestParams,
)
from treadle.protocol.item import FileUpdateChange
from treadle.protocol.permission import PermissionsRequestApprovalParams
from treadle.protocol.tool import ToolRequestUserInputQuestion
from treadle.support.text.terminal import LINE, block, has_escapes

_ROWS: Final = 36
_FEW_ROWS: Final = 6
_NOTE: Final = r"  escapes such as \x1b replace characters that a terminal would interpret or hide"
_SANDBOX: Final = (
    "  sandbox: a yes can let this run WITHOUT the sandbox; the server does not report this"
)
_FORM: Final = "  this terminal cannot fill in the form that the server requests"
_SCHEMES: Final = {"socks5Tcp": "tcp", "socks5Udp": "udp"}
_ONCE: Final = ("[y]es", "[N]o", "[s]top")
_ALWAYS: Final = ("[y]es", "[a]lways in this session", "[N]o", "[s]top")
_WHOLE: Final = "[w]hole text"


@dataclass(frozen=True, slots=True)
class QuotedText:
    """Text from the model or a server, under the client's label."""

    label: str
    text: str
    rows: int = _ROWS


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt; the client's own `facts` come last, next to the answers."""

    title: str
    parts: Sequence[QuotedText]
    facts: Sequence[str] = ()
    answers: Sequence[str] = ()
    """Choices of the user; empty if free text is expected."""

    def render(self, width: int, *, is_whole: bool = False) -> str:
        """Return the text for a terminal; long parts are cut unless `is_whole`."""
        lines = ["", self.title]
        is_cut = False
        for part in self.parts:
            rows = block(part.text, width)
            lines.append(f"  {part.label}:")
            if len(rows) > part.rows and not is_whole:
                rows, is_cut = _cut(rows, part.rows), True
            lines += rows
        if any(has_escapes(part.text) for part in self.parts):
            lines.append(_NOTE)
        lines += self.facts
        if is_cut:
            lines.append('  not all of it is shown: answer "w" to see the whole text')
        # Inserted before the last two answers, which stay next to the cursor.
        answers = [*self.answers[:-2], *([_WHOLE] if is_cut else []), *self.answers[-2:]]
        lines.append(f"{', '.join(answers)}: " if self.answers else "> ")
        return "\n".join(lines)


def _cut(rows: Sequence[str], limit: int) -> list[str]:
    head, tail = limit - limit // 3 - 1, limit // 3
    omitted = sum(len(row) - len(LINE) for row in rows[head:-tail])
    middle = f"  [... {omitted} characters in {len(rows) - head - tail} rows left out ...]"
    return [*rows[:head], middle, *rows[-tail:]]


def about_command(ask: CommandApproval) -> Prompt:
    """Return the prompt about a command that wants to run, get input or reach a host."""
    params = ask.params
    if not isinstance(params, CommandExecutionRequestApprovalParams):
        return _about_running(ask, "Run this command?", [], _ALWAYS)
    answers = _ALWAYS if _offers_session(params) else _ONCE
    if params.network_approval_context is not None:
        address = QuotedText("address", _address(params))
        parts = [*_reason("reason", ask.reason), *_known("command", ask.command), address]
        return Prompt("Let the running command reach this address?", parts, answers=answers)
    is_input = params.kind == "writeStdin"
    title = "Type this into a command that is already running?" if is_input else "Run this command?"
    return _about_running(ask, title, _permissions(params.additional_permissions), answers)


def _about_running(
    ask: CommandApproval, title: str, permissions: Sequence[str], answers: Sequence[str]
) -> Prompt:
    parts = [
        *_reason("the model says (not checked)", ask.reason),
        *_known("folder", ask.cwd),
        QuotedText(
            "command", "(not sent by the server)" if ask.command is None else str(ask.command)
        ),
    ]
    if permissions:
        parts.append(QuotedText("permissions beyond the sandbox", "\n".join(permissions)))
    return Prompt(title, parts, [_SANDBOX], answers)


def about_files(ask: FileChangeApproval) -> Prompt:
    """Return the prompt about file changes."""
    diffs = [f"{_edit(change)}\n{change.diff}" for change in ask.changes]
    parts = _reason("reason (not checked)", ask.reason)
    facts: list[str] = []
    if diffs:
        parts.append(QuotedText("changes", "\n".join(diffs)))
        parts.append(QuotedText("files", "\n".join(_edit(change) for change in ask.changes)))
    else:
        facts.append("  the server did not send the files or their changes")
    if ask.grant_root is not None:
        parts.append(
            QuotedText("a yes grants write access for the session below", str(ask.grant_root))
        )
    return Prompt("Make these changes to files?", parts, facts, _ALWAYS)


def _edit(change: FileUpdateChange) -> str:
    kind = getattr(change.kind, "__struct_config__", None)
    move = getattr(change.kind, "move_path", None)
    path = _name(change.path)
    named = path if move is None else f"{path} -> {_name(move)}"
    return f"{getattr(kind, 'tag', None) or 'change'} {named}"


def about_permissions(ask: PermissionsRequestApprovalParams) -> Prompt:
    """Return the prompt about additional permissions for the turn."""
    requested = _permissions(ask.permissions) or ["nothing"]
    parts = [
        *_reason("the model says (not checked)", ask.reason),
        *_known("folder", ask.cwd),
        QuotedText("permissions for all later commands of this turn", "\n".join(requested)),
    ]
    return Prompt("Give the model's commands these permissions?", parts, answers=_ONCE[:2])


def about_input(question: ToolRequestUserInputQuestion) -> Prompt:
    """Return the prompt for a question of the model."""
    parts = [QuotedText("the model asks", str(question.question))]
    options = [
        f"{number}. {_name(option.label)}" + (f" - {_name(text)}" if text else "")
        for number, option in enumerate(question.options or (), 1)
        for text in [option.description]
    ]
    if options:
        parts.append(QuotedText("options (answer with a number or free text)", "\n".join(options)))
    return Prompt("The model has a question.", parts)


def about_elicitation(ask: McpServerElicitationRequestParams) -> Prompt:
    """Return the prompt for an elicitation."""
    parts = [
        *_known("MCP server", getattr(ask, "server_name", None)),
        *_known("it says (not checked)", _message(ask)),
    ]
    meta = getattr(ask, "meta", None)
    if isinstance(meta, Mapping) and meta:
        # The arguments are present twice; the display copy is omitted in favour of the real ones.
        details = {name: meta[name] for name in meta if name != "tool_params_display"}
        parts.append(QuotedText("details", _json(details)))
    if isinstance(ask, UrlMcpServerElicitationRequestParams):
        parts.append(QuotedText("it wants you to open", str(ask.url)))
        return Prompt("Does this MCP server get your consent?", parts, answers=_ONCE)
    if not can_accept(ask):
        return Prompt("An MCP server asks for input.", parts, [_FORM], _ONCE[1:])
    return Prompt("Does this MCP server get your consent?", parts, answers=_ONCE)


def can_accept(ask: McpServerElicitationRequestParams) -> bool:
    """Return whether a plain yes is a complete answer: forms with required fields need more."""
    if isinstance(ask, UrlMcpServerElicitationRequestParams):
        return True
    schema = msgspec.to_builtins(getattr(ask, "requested_schema", None))
    return isinstance(schema, dict) and not schema.get("required")


def _message(ask: object) -> str | None:
    texts = [getattr(ask, name, None) for name in ("title", "message", "description")]
    return "\n".join(str(each) for each in texts if each) or None


def _offers_session(params: CommandExecutionRequestApprovalParams) -> bool:
    """Return whether the session answer applies: servers omit it where it allows too much."""
    offered = params.available_decisions
    if offered is None:
        return params.additional_permissions is None and params.kind == "command"
    # Where a rule is offered instead, a yes for the session allows less than the rule.
    return any(each == "acceptForSession" or not isinstance(each, str) for each in offered)


def _address(params: CommandExecutionRequestApprovalParams) -> str:
    context = params.network_approval_context
    host = str(getattr(context, "host", None))
    protocol = str(getattr(context, "protocol", None))
    # Only the item id contains the port.
    match str(params.item_id).split("#"):
        case ["network", _, _, named, port, _] if named == host and port.isdecimal():
            port = f":{port}"
        case _:
            port = ""
    place = f"[{host}]" if ":" in host else host
    return f"{_SCHEMES.get(protocol, protocol)}://{place}{port}"


def _permissions(profile: object) -> list[str]:
    """Return one line for each permission of a profile."""
    fields = msgspec.to_builtins(profile)
    return list(_lines(fields)) if isinstance(fields, dict) else []


def _lines(profile: Mapping[str, JsonValue]) -> Iterator[str]:
    for name, part in profile.items():
        fields = part if isinstance(part, dict) else {}
        if name == "network" and fields.get("enabled") is not None:
            yield "network: all hosts" if fields["enabled"] else "network: none"
        elif name == "fileSystem" and fields:
            for access in ("read", "write"):
                yield from (f"{access}: {_name(path)}" for path in fields.get(access) or ())
            yield from (_entry(entry) for entry in fields.get("entries") or ())
        elif part is not None and not fields:
            yield f"{_name(name)}: {_name(part)}"


def _entry(entry: JsonValue) -> str:
    path = entry.get("path") if isinstance(entry, dict) else None
    match path:
        case {"type": "path", "path": str() as place}:
            shown = _name(place)
        case {"type": "glob_pattern", "pattern": str() as pattern}:
            shown = f"all files that match {_name(pattern)}"
        case {"type": "special", "value": {"kind": "root"}}:
            shown = "/ (the whole file system)"
        case {"type": "special", "value": value}:
            shown = f"special place {_name(value)}"
        case _:
            return _name(entry)
    return f"{_name(entry.get('access'))}: {shown}"


def _reason(label: str, reason: str | None) -> list[QuotedText]:
    return [QuotedText(label, str(reason), _FEW_ROWS)] if reason else []


def _known(label: str, text: str | None) -> list[QuotedText]:
    return [] if text is None else [QuotedText(label, str(text))]


def _name(value: JsonValue) -> str:
    r"""Return a value as one line: a line break in it must not look like the next entry.

    Other control characters are escaped with the rest of the text.
    """
    text = value if isinstance(value, str) else _json(value)
    return text.replace("\n", "\\n")


def _json(value: JsonValue) -> str:
    # Not msgspec, which rejects lone surrogates.
    return json.dumps(value, ensure_ascii=False, default=str)
