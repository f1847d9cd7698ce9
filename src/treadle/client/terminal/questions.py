"""What a terminal shows of each question: all that a yes would allow, and nothing that misleads.

Text from the model or a server appears in marked rows alone, with control characters as escapes.
The program's own lines have no mark, so that no text can imitate them.
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
_NOTE: Final = r"  escapes such as \x1b stand for characters that a terminal would obey or hide"
_SANDBOX: Final = (
    "  sandbox: a yes can let this run WITHOUT the sandbox; the server does not say if it does"
)
_FORM: Final = "  this terminal cannot give what the server asks for"
_SCHEMES: Final = {"socks5Tcp": "tcp", "socks5Udp": "udp"}
_ONCE: Final = ("[y]es", "[N]o", "[s]top")
_ALWAYS: Final = ("[y]es", "[a]lways in this session", "[N]o", "[s]top")
_WHOLE: Final = "[w]hole text"


@dataclass(frozen=True, slots=True)
class QuotedText:
    """One text that is not ours, under a label that is."""

    label: str
    text: str
    rows: int = _ROWS


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question as it is shown; facts of our own stand last, next to the answers."""

    title: str
    parts: Sequence[QuotedText]
    facts: Sequence[str] = ()
    answers: Sequence[str] = ()
    """None: free text is expected."""

    def shown(self, width: int, *, is_whole: bool = False) -> str:
        """The text for a terminal of this width; long parts are cut unless all is wanted."""
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
        # Where it stands, the last answers stay next to the cursor.
        answers = [*self.answers[:-2], *([_WHOLE] if is_cut else []), *self.answers[-2:]]
        lines.append(f"{', '.join(answers)}: " if self.answers else "> ")
        return "\n".join(lines)


def _cut(rows: Sequence[str], most: int) -> list[str]:
    head, tail = most - most // 3 - 1, most // 3
    left_out = sum(len(row) - len(LINE) for row in rows[head:-tail])
    middle = f"  [... {left_out} characters in {len(rows) - head - tail} rows left out ...]"
    return [*rows[:head], middle, *rows[-tail:]]


def about_command(ask: CommandApproval) -> Prompt:
    """May a command run, get input, or reach a host?"""
    params = ask.params
    if not isinstance(params, CommandExecutionRequestApprovalParams):
        return _about_running(ask, "Run this command?", [], _ALWAYS)
    answers = _ALWAYS if _lasts(params) else _ONCE
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
            "command", "(the server does not say)" if ask.command is None else str(ask.command)
        ),
    ]
    if permissions:
        parts.append(QuotedText("beyond the sandbox it gets", "\n".join(permissions)))
    return Prompt(title, parts, [_SANDBOX], answers)


def about_files(ask: FileChangeApproval) -> Prompt:
    """May files be changed?"""
    diffs = [f"{_edit(change)}\n{change.diff}" for change in ask.changes]
    parts = _reason("reason given (not checked)", ask.reason)
    facts: list[str] = []
    if diffs:
        parts.append(QuotedText("changes", "\n".join(diffs)))
        parts.append(QuotedText("files", "\n".join(_edit(change) for change in ask.changes)))
    else:
        facts.append("  the server has not said which files, nor what changes in them")
    if ask.grant_root is not None:
        parts.append(
            QuotedText("a yes opens for the session all that is below", str(ask.grant_root))
        )
    return Prompt("Make these changes to files?", parts, facts, _ALWAYS)


def _edit(change: FileUpdateChange) -> str:
    kind = getattr(change.kind, "__struct_config__", None)
    move = getattr(change.kind, "move_path", None)
    path = _name(change.path)
    named = path if move is None else f"{path} -> {_name(move)}"
    return f"{getattr(kind, 'tag', None) or 'change'} {named}"


def about_permissions(ask: PermissionsRequestApprovalParams) -> Prompt:
    """May the commands of the turn do more?"""
    wanted = _permissions(ask.permissions) or ["nothing"]
    parts = [
        *_reason("the model says (not checked)", ask.reason),
        *_known("folder", ask.cwd),
        QuotedText("all later commands of this turn get", "\n".join(wanted)),
    ]
    return Prompt("Give the model's commands these permissions?", parts, answers=_ONCE[:2])


def about_input(question: ToolRequestUserInputQuestion) -> Prompt:
    """What does the user say?"""
    parts = [QuotedText("the model asks", str(question.question))]
    options = [
        f"{number}. {_name(option.label)}" + (f" - {_name(text)}" if text else "")
        for number, option in enumerate(question.options or (), 1)
        for text in [option.description]
    ]
    if options:
        parts.append(
            QuotedText("answers to choose from, by number or in other words", "\n".join(options))
        )
    return Prompt("The model has a question.", parts)


def about_elicitation(ask: McpServerElicitationRequestParams) -> Prompt:
    """What does the user say to an MCP server?"""
    parts = [
        *_known("MCP server", getattr(ask, "server_name", None)),
        *_known("it says (not checked)", _said(ask)),
    ]
    meta = getattr(ask, "meta", None)
    if isinstance(meta, Mapping) and meta:
        # The arguments are there twice, once for display: those that are used are shown.
        shown = {name: meta[name] for name in meta if name != "tool_params_display"}
        parts.append(QuotedText("details", _json(shown)))
    if isinstance(ask, UrlMcpServerElicitationRequestParams):
        parts.append(QuotedText("it wants you to open", str(ask.url)))
        return Prompt("Does this MCP server get your consent?", parts, answers=_ONCE)
    if not can_accept(ask):
        return Prompt("An MCP server asks for input.", parts, [_FORM], _ONCE[1:])
    return Prompt("Does this MCP server get your consent?", parts, answers=_ONCE)


def can_accept(ask: McpServerElicitationRequestParams) -> bool:
    """Whether a plain yes is an answer: forms with fields to fill in need more."""
    if isinstance(ask, UrlMcpServerElicitationRequestParams):
        return True
    schema = msgspec.to_builtins(getattr(ask, "requested_schema", None))
    return isinstance(schema, dict) and not schema.get("required")


def _said(ask: object) -> str | None:
    said = [getattr(ask, name, None) for name in ("title", "message", "description")]
    return "\n".join(str(each) for each in said if each) or None


def _lasts(params: CommandExecutionRequestApprovalParams) -> bool:
    """Whether a yes for the session is an answer: servers leave it out where it says too much."""
    offered = params.available_decisions
    if offered is None:
        return params.additional_permissions is None and params.kind == "command"
    # Where a rule is offered instead, a yes for the session says less than the rule.
    return any(each == "acceptForSession" or not isinstance(each, str) for each in offered)


def _address(params: CommandExecutionRequestApprovalParams) -> str:
    context = params.network_approval_context
    host = str(getattr(context, "host", None))
    protocol = str(getattr(context, "protocol", None))
    # The port is part of the item's name alone.
    match str(params.item_id).split("#"):
        case ["network", _, _, named, port, _] if named == host and port.isdecimal():
            port = f":{port}"
        case _:
            port = ""
    place = f"[{host}]" if ":" in host else host
    return f"{_SCHEMES.get(protocol, protocol)}://{place}{port}"


def _permissions(profile: object) -> list[str]:
    """What a profile opens, a line each."""
    fields = msgspec.to_builtins(profile)
    return list(_opened(fields)) if isinstance(fields, dict) else []


def _opened(profile: Mapping[str, JsonValue]) -> Iterator[str]:
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
    r"""A value within a list: a line break in it must not look like the next entry.

    A carriage return and the like are escaped with everything else.
    """
    text = value if isinstance(value, str) else _json(value)
    return text.replace("\n", "\\n")


def _json(value: JsonValue) -> str:
    # Not by msgspec, which refuses lone surrogates.
    return json.dumps(value, ensure_ascii=False, default=str)
