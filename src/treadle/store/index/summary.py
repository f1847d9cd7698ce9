"""Summarises a rollout file for the index, without reading all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from treadle.protocol.base import JsonValue
from treadle.protocol.item import ItemCompletedNotification, ThreadItem, UserMessageThreadItem
from treadle.store.index.index import Row
from treadle.store.journal import ThreadCorrupt
from treadle.store.records import (
    InputQueued,
    MetadataChanged,
    Named,
    ReadStateChanged,
    SettingsChanged,
    TurnContext,
)
from treadle.store.rollout.foreign.items import read_item, read_legacy
from treadle.store.rollout.foreign.settings import read_turn_context
from treadle.store.rollout.format import (
    OwnEvent,
    RolloutLine,
    SessionMeta,
    decode_line,
    parse_time,
    session_meta,
    to_meta,
)
from treadle.store.rollout.reading import RolloutFile
from treadle.store.rollout.replay import preview, preview_of
from treadle.store.stored_thread import MAX_PREVIEW_CHARACTERS

# Rollouts contain no spaces between tokens, though other programs may write some.
_MESSAGES: Final = (
    b'"user_message"',
    b'"UserMessage"',
    b'"type":"userMessage"',
    b'"record":"input"',
)
_CONTEXT: Final = b'"turn_context"'
_SETTINGS: Final = b'"record":"settingsGiven"'
_STARTED: Final = b'"task_started"'
_GIT: Final = b'"record":"metadata"'
_NAMED: Final = b'"record":"named"'
_READ_STATE: Final = b'"record":"readState"'

_payloads: Final = msgspec.json.Decoder(dict[str, JsonValue])
_item_completed: Final = msgspec.json.Decoder(ItemCompletedNotification)

FindBase = Callable[[SessionMeta], Row | None]

# In a larger file, only this much of its start and its end is searched.
MAX_HEAD_BYTES: Final = 64 * 1024 * 1024
MAX_TAIL_BYTES: Final = 256 * 1024 * 1024
# A user may mark a thread as read many times, one line each.
MAX_MARKS: Final = 1000


def summarize(file: RolloutFile, *, archived: bool, find_base: FindBase) -> Row:
    """Return the row of a file.

    Raises:
        ThreadCorrupt: it does not begin like a rollout.
    """
    return _Summary(file, find_base).row(archived=archived)


class _Summary:
    def __init__(self, file: RolloutFile, find_base: FindBase) -> None:
        self._file = file
        self._size = file.size
        if not self._size:
            raise ThreadCorrupt(str(file.path), "empty file")
        head = (decode_line(piece) for _, piece in self._head())
        first = next((line for line in head if line is not None), None)
        self._session = session_meta(first, file.path)
        assert first is not None  # noqa: S101  session_meta rejects None
        self._meta = to_meta(self._session, first, file.path)
        self._first = first
        self._base = find_base(self._session) if self._session.history_base else None

    def _head(self) -> Iterator[tuple[int, bytes]]:
        return self._file.lines(0, min(self._size, MAX_HEAD_BYTES))

    def row(self, *, archived: bool) -> Row:
        message = self._preview()
        settings = self._settings()
        created = parse_time(self._session.timestamp) or parse_time(self._first.timestamp) or 0
        updated = self._last_time(created)
        started = self._last(_STARTED, lambda line: line.type == "event_msg")
        recency = None if started is None else parse_time(started.timestamp)
        git = self._last(_GIT, lambda line: isinstance(line.treadle, MetadataChanged))
        named = self._last(_NAMED, lambda line: isinstance(line.treadle, Named))
        marked = self._last(_READ_STATE, lambda line: isinstance(line.treadle, ReadStateChanged))
        meta = self._meta
        if marked is not None and isinstance(marked.treadle, ReadStateChanged):
            meta = msgspec.structs.replace(meta, read_state=marked.treadle.read_state)
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
            preview=(message or "")[:MAX_PREVIEW_CHARACTERS],
            archived=archived,
            updated_at=updated // 1000,
            recency_at=(recency or created) // 1000,
        )
        return Row(meta, created, updated, recency or created, message is not None)

    def _preview(self) -> str | None:
        if self._base is not None and self._base.has_message:
            return self._base.meta.preview
        for _, piece in self._head():
            if not any(word in piece for word in _MESSAGES):
                continue
            line = decode_line(piece)
            message = None if line is None else _first_words(line)
            if message is not None:
                return message
        return None

    def _settings(self) -> TurnContext | None:
        found = self._last_at(_CONTEXT, lambda line: line.type == "turn_context")
        changed = self._last_at(_SETTINGS, lambda line: isinstance(line.treadle, SettingsChanged))
        if changed is not None and (found is None or changed[1] > found[1]):
            mark = changed[0].treadle
            return mark.settings if isinstance(mark, SettingsChanged) else None
        if found is None:
            return None
        line = found[0]
        if isinstance(line.treadle, TurnContext):
            return line.treadle
        provider = self._meta.model_provider
        return read_turn_context(_payload(line), provider, None)

    def _last_time(self, default: int) -> int:
        end = self._file.rfind(b"\n", max(0, self._size - MAX_TAIL_BYTES), self._size)
        line: RolloutLine | None = None
        for _ in range(MAX_MARKS):
            line, start = self._line_at(end - 1) if end > 0 else (None, 0)
            if line is None or not isinstance(line.treadle, ReadStateChanged):
                break
            end = start - 1  # reading does not change the thread
        return (parse_time(line.timestamp) if line is not None else None) or default

    def _last(self, word: bytes, is_it: Callable[[RolloutLine], bool]) -> RolloutLine | None:
        found = self._last_at(word, is_it)
        return None if found is None else found[0]

    def _last_at(
        self, word: bytes, is_it: Callable[[RolloutLine], bool]
    ) -> tuple[RolloutLine, int] | None:
        """Return the last line with this word that is wanted, and its start."""
        end, least = self._size, max(0, self._size - MAX_TAIL_BYTES)
        while (at := self._file.rfind(word, least, end)) >= 0:
            line, end = self._line_at(at)
            if line is not None and is_it(line):
                return line, end
        return None

    def _line_at(self, at: int) -> tuple[RolloutLine | None, int]:
        """Return the line that contains an offset, and its start."""
        start, piece = self._file.line_around(at)
        return None if piece is None else decode_line(piece), start


def _payload(line: RolloutLine) -> Mapping[str, JsonValue]:
    try:
        return _payloads.decode(line.payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _first_words(line: RolloutLine) -> str | None:
    """Return the text of a user message, or `None` if the line has none."""
    if isinstance(line.treadle, InputQueued):
        # Acknowledged input counts, though no turn has consumed it yet.
        return preview_of(line.treadle.content) if line.treadle.content else None
    message = _user_message(line)
    return None if message is None else preview(message)


def _user_message(line: RolloutLine) -> UserMessageThreadItem | None:
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
