"""A look at a rollout file: enough for the index, without reading all of it."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from treadle.protocol.base import JsonValue
from treadle.protocol.item import ItemCompletedNotification, ThreadItem, UserMessageThreadItem
from treadle.store.foreign_items import read_item, read_legacy
from treadle.store.foreign_settings import read_turn_context
from treadle.store.index import Row
from treadle.store.journal import ThreadCorrupt
from treadle.store.records import MetadataChanged, Named, TurnContext
from treadle.store.replay import preview
from treadle.store.rollout import (
    Line,
    OwnEvent,
    SessionMeta,
    decode_line,
    parse_time,
    session_meta,
    to_meta,
)

# Rollouts are written without spaces, but others may write them otherwise.
_USER: Final = (b'"user_message"', b'"UserMessage"', b'"type":"userMessage"')
_CONTEXT: Final = b'"turn_context"'
_STARTED: Final = b'"task_started"'
_GIT: Final = b'"record":"metadata"'
_NAMED: Final = b'"record":"named"'

_payloads: Final = msgspec.json.Decoder(dict[str, JsonValue])
_item_completed: Final = msgspec.json.Decoder(ItemCompletedNotification)

FindBase = Callable[[SessionMeta], Row | None]


def summarize(path: Path, *, archived: bool, find_base: FindBase) -> Row:
    """Say what a list needs to know about a file.

    Raises:
        ThreadCorrupt: it does not begin as a rollout does.
    """
    with path.open("rb") as file:
        try:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise ThreadCorrupt(str(path), "empty file") from None
        with view:
            return _Summary(view, path, find_base).row(archived=archived)


class _Summary:
    def __init__(self, view: mmap.mmap, path: Path, find_base: FindBase) -> None:
        end = view.find(b"\n")
        first = decode_line(view[: end if end >= 0 else len(view)])
        self._view = view
        self._session = session_meta(first, path)
        assert first is not None  # noqa: S101  session_meta has refused it otherwise
        self._meta = to_meta(self._session, first, path)
        self._first = first
        self._base = find_base(self._session) if self._session.history_base else None

    def row(self, *, archived: bool) -> Row:
        message = self._preview()
        settings = self._settings()
        created = parse_time(self._session.timestamp) or parse_time(self._first.timestamp) or 0
        updated = self._last_time(created)
        started = self._last(_STARTED, lambda line: line.type == "event_msg")
        recency = None if started is None else parse_time(started.timestamp)
        git = self._last(_GIT, lambda line: isinstance(line.treadle, MetadataChanged))
        named = self._last(_NAMED, lambda line: isinstance(line.treadle, Named))
        meta = self._meta
        if git is not None and isinstance(git.treadle, MetadataChanged):
            meta = msgspec.structs.replace(meta, git_info=git.treadle.git_info)
        if named is not None and isinstance(named.treadle, Named):
            meta = msgspec.structs.replace(meta, name=named.treadle.name)
        if settings is not None:
            meta = msgspec.structs.replace(
                meta,
                model=settings.model,
                model_provider=settings.provider,
                reasoning_effort=settings.effort,
                cwd=settings.cwd,
            )
        meta = msgspec.structs.replace(
            meta,
            preview=message or "",
            archived=archived,
            updated_at=updated // 1000,
            recency_at=(recency or created) // 1000,
        )
        return Row(meta, created, updated, recency or created, message is not None)

    def _preview(self) -> str | None:
        if self._base is not None and self._base.has_message:
            return self._base.meta.preview
        for line in self._lines_with(_USER):
            message = _user_message(line)
            if message is not None:
                return preview(message)
        return None

    def _settings(self) -> TurnContext | None:
        line = self._last(_CONTEXT, lambda line: line.type == "turn_context")
        if line is None:
            return None
        if isinstance(line.treadle, TurnContext):
            return line.treadle
        provider = self._meta.model_provider
        return read_turn_context(_payload(line), provider, None)

    def _last_time(self, default: int) -> int:
        end = self._view.rfind(b"\n")
        start = self._view.rfind(b"\n", 0, max(end, 0)) + 1
        line = decode_line(self._view[start : max(end, 0)])
        return (parse_time(line.timestamp) if line is not None else None) or default

    def _lines_with(self, words: tuple[bytes, ...]) -> Iterator[Line]:
        place = 0
        while True:
            found = [at for at in (self._view.find(word, place) for word in words) if at >= 0]
            if not found:
                return
            line, place = self._line_at(min(found))
            if line is not None:
                yield line

    def _last(self, word: bytes, is_it: Callable[[Line], bool]) -> Line | None:
        end = len(self._view)
        while (at := self._view.rfind(word, 0, end)) >= 0:
            line, _ = self._line_at(at)
            if line is not None and is_it(line):
                return line
            end = at
        return None

    def _line_at(self, at: int) -> tuple[Line | None, int]:
        start = self._view.rfind(b"\n", 0, at) + 1
        end = self._view.find(b"\n", at)
        if end < 0:
            end = len(self._view)
        return decode_line(self._view[start:end]), end


def _payload(line: Line) -> Mapping[str, JsonValue]:
    try:
        return _payloads.decode(line.payload)
    except msgspec.DecodeError:
        return {}


def _user_message(line: Line) -> UserMessageThreadItem | None:
    if isinstance(line.treadle, OwnEvent):
        if line.treadle.method != "item/completed":
            return None
        item: ThreadItem | None = _item_completed.decode(line.treadle.params).item
    elif line.type == "event_msg":
        payload = _payload(line)
        stored = payload.get("item")
        if payload.get("type") == "user_message":
            item = read_legacy(payload, lambda: "")
        elif isinstance(stored, Mapping) and stored.get("type") == "UserMessage":
            item = read_item(stored)
        else:
            return None
    else:
        return None
    return item if isinstance(item, UserMessageThreadItem) else None
