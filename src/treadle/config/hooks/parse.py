"""Reads the table of hooks in a configuration file: events, groups with a matcher, handlers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from treadle.engine.hooks.events import BY_TITLE, EVENTS, HookEvent
from treadle.engine.hooks.hook import BadMatcher, HookHandler, matching
from treadle.protocol.base import JsonValue
from treadle.protocol.explain import explain
from treadle.protocol.hook import CommandConfiguredHookHandler, McpToolConfiguredHookHandler

MAX_HANDLERS: Final = 200
"""The most handlers of one file."""
MAX_UNKNOWN: Final = 20
"""How many unknown events of a file are named."""
MAX_COMMAND: Final = 16 * 1024

STATE: Final = "state"
"""The key of the table that records which hooks the user trusts."""

Path: TypeAlias = tuple[str | int, ...]
"""The place of a value in a document."""

_Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]


class _Command(Struct, frozen=True, tag_field="type", tag="command", rename="camel"):
    command: str
    # For Windows, in both spellings; checked like the rest, and not used here.
    command_windows: str | None = None
    command_windows_as_in_toml: str | None = field(name="command_windows", default=None)
    timeout: _Count | None = None
    is_async: bool = field(name="async", default=False)
    status_message: str | None = None
    additional_context_limit: _Count | None = None


class _McpTool(Struct, frozen=True, tag_field="type", tag="mcp_tool", rename="camel"):
    server: str
    tool: str
    input: dict[str, JsonValue] = {}
    timeout: _Count | None = None
    status_message: str | None = None


class _Prompt(Struct, frozen=True, tag_field="type", tag="prompt"):
    pass


class _Agent(Struct, frozen=True, tag_field="type", tag="agent"):
    pass


_Handler: TypeAlias = _Command | _McpTool | _Prompt | _Agent


class Slot(Struct, frozen=True, kw_only=True):
    """A place for one handler: its event and position, and the handler or why it is unusable."""

    event: HookEvent
    group: int
    index: int
    path: Path
    matcher: str | None = None
    handler: HookHandler | None = None
    fault: str | None = None
    # For the user: what is ignored, or why the handler is skipped.
    notes: tuple[str, ...] = ()


class Wrong(Struct, frozen=True):
    """A part of the table that is not read; `event` is `None` if it belongs to none."""

    fault: str
    path: Path
    event: HookEvent | None = None


def read_table(table: JsonValue, at: Path = ()) -> Iterator[Slot | Wrong]:
    """Yield every handler of a table, in the order of the events, and what is wrong with it."""
    if not isinstance(table, dict):
        yield Wrong(f"expected an object with events, got {_kind(table)}", at)
        return
    unknown = sorted(table.keys() - BY_TITLE.keys() - {STATE})
    for title in unknown[:MAX_UNKNOWN]:
        yield Wrong(f"unknown event `{title[:60]}`", (*at, title))
    count = 0
    for event in EVENTS:
        for found in _groups(event, table.get(event.title, []), (*at, event.title)):
            # Parts that are not read count too: each is reported.
            count += 1
            if count > MAX_HANDLERS:
                yield Wrong(f"more than {MAX_HANDLERS} hooks", at, event)
                break
            yield found


def _groups(event: HookEvent, groups: JsonValue, at: Path) -> Iterator[Slot | Wrong]:
    if not isinstance(groups, list):
        yield Wrong(f"`{event.title}`: expected an array, got {_kind(groups)}", at, event)
        return
    for index, group in enumerate(groups):
        yield from _group(event, index, group, (*at, index))


def _group(event: HookEvent, index: int, group: JsonValue, at: Path) -> Iterator[Slot | Wrong]:
    where = f"`{event.title}[{index}]`"
    if not isinstance(group, dict):
        yield Wrong(f"{where}: expected an object with `hooks`, got {_kind(group)}", at, event)
        return
    matcher, handlers = group.get("matcher"), group.get("hooks", [])
    if not isinstance(handlers, list):
        yield Wrong(f"{where}: `hooks`: expected an array, got {_kind(handlers)}", at, event)
        return
    fault = _matcher_fault(event, matcher)
    for position, handler in enumerate(handlers):
        slot = Slot(
            event=event,
            group=index,
            index=position,
            path=(*at, "hooks", position),
            matcher=matcher if event.uses_matcher and fault is None else None,
        )
        where = f"`{event.title}[{index}].hooks[{position}]`"
        found = slot if fault is not None else read_handler(slot, handler)
        reason = fault or found.fault
        yield found if reason is None else _replace(found, fault=f"{where}: {reason}")


def _matcher_fault(event: HookEvent, matcher: JsonValue) -> str | None:
    if not event.uses_matcher or matcher is None:
        return None
    if not isinstance(matcher, str):
        return f"`matcher`: expected a string, got {_kind(matcher)}"
    try:
        matching(matcher)
    except BadMatcher as error:
        return f"invalid matcher {matcher[:60]!r}: {error}"
    return None


def read_handler(slot: Slot, value: JsonValue) -> Slot:
    """Read the handler of a slot."""
    try:
        read: _Handler = msgspec.convert(value, _Handler)
    except msgspec.ValidationError as error:
        return _replace(slot, fault=explain(error, _Handler).message)
    match read:
        case _Command():
            return _command(slot, read)
        case _McpTool():
            handler = McpToolConfiguredHookHandler(
                input=read.input,
                server=read.server,
                tool=read.tool,
                status_message=read.status_message,
                timeout_sec=read.timeout,
            )
            return _timed(_replace(slot, handler=handler), read.timeout)
        case _Prompt() | _Agent():
            kind = type(read).__name__[1:].lower()
            return _replace(slot, notes=(f"skipping {kind} hook: {kind} hooks are not supported",))


def _command(slot: Slot, read: _Command) -> Slot:
    event, notes = slot.event, []
    if not read.command.strip():
        return _replace(slot, notes=("skipping empty hook command",))
    if "\0" in read.command or len(read.command) > MAX_COMMAND:
        wanted = f"at most {MAX_COMMAND} characters without a null character"
        return _replace(slot, fault=f"`command`: expected {wanted}")
    limit = read.additional_context_limit
    if limit is not None and not event.takes_context:
        notes.append(
            f"ignoring additionalContextLimit for {event.title} hook: "
            "this event cannot emit additionalContext"
        )
        limit = None
    if read.is_async and event.name == "sessionEnd":
        notes.append("running async SessionEnd hook synchronously")
    handler = CommandConfiguredHookHandler(
        async_=read.is_async,
        command=read.command,
        additional_context_limit=limit,
        status_message=read.status_message,
        timeout_sec=read.timeout,
    )
    return _timed(_replace(slot, handler=handler, notes=tuple(notes)), read.timeout)


def _timed(slot: Slot, configured: int | None) -> Slot:
    seconds = slot.event.seconds(configured)
    if configured is None or configured <= seconds:
        return slot
    note = f"clamping {slot.event.title} hook timeout to {seconds}s"
    return _replace(slot, notes=(*slot.notes, note))


def _replace(slot: Slot, **changes: object) -> Slot:
    return msgspec.structs.replace(slot, **changes)


def _kind(value: JsonValue) -> str:
    names = {dict: "an object", list: "an array", str: "a string", type(None): "null"}
    return names.get(type(value), type(value).__name__)
