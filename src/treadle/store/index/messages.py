"""The index over messages; updated when a client searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from treadle.protocol.base import JsonValue
from treadle.protocol.item import (
    AgentMessageThreadItem,
    ItemCompletedNotification,
    ThreadItem,
    UserMessageThreadItem,
)
from treadle.store.index.database import Database
from treadle.store.index.index import path_of
from treadle.store.journal import StoreError
from treadle.store.records import InputConsumed, InputQueued
from treadle.store.rollout.foreign.items import read_item, read_legacy
from treadle.store.rollout.format import OwnEvent, RolloutLine, decode_line
from treadle.store.rollout.reading import RolloutFile
from treadle.store.rollout.replay import preview, preview_of

MAX_CHARS: Final = 64 * 1024
"""How many characters of one message are indexed."""
MAX_THREAD_CHARS: Final = 8 * 1024 * 1024
"""How many characters of one thread are indexed, from its start."""
BATCH: Final = 256
# Lines without any of these words contain no message and are not decoded.
_WORDS: Final = (
    b'"user_message"',
    b'"agent_message"',
    b'"UserMessage"',
    b'"AgentMessage"',
    b'"record":"input',
)

_payloads: Final = msgspec.json.Decoder(dict[str, JsonValue])
_item_completed: Final = msgspec.json.Decoder(ItemCompletedNotification)


class MessageIndex:
    """Indexes the messages of threads, each once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def refresh(self) -> None:
        """Index the messages since the last call."""
        with self._database.reading() as connection:
            behind = connection.execute(
                "select number, threads.path, spoken, size from threads"
                " join files on files.path = threads.path where spoken <> size"
            ).fetchall()
        for number, path, spoken, size in behind:
            self._take(number, Path(path_of(path)), spoken, size)

    def _take(self, number: int, path: Path, spoken: int, size: int) -> None:
        try:
            with RolloutFile(path) as file:
                reading = _Texts(file.lines(spoken, size), spoken, self._room(number))
                # In batches, so that neither memory use nor other writers depend on the file size.
                while texts := list(islice(reading, BATCH)):
                    self._enter(number, texts, reading.offset)
                self._enter(number, reading.waiting(), reading.offset)
        except StoreError:
            return

    def _room(self, number: int) -> int:
        """Return how many more characters of a thread may be indexed."""
        with self._database.reading() as connection:
            (used,) = connection.execute(
                "select coalesce(sum(length(text)), 0) from messages where thread = ?", (number,)
            ).fetchone()
        return MAX_THREAD_CHARS - int(used)

    def _enter(self, number: int, texts: Sequence[str], offset: int) -> None:
        rows = [(number, text) for text in texts]
        with self._database.writing() as connection:
            connection.executemany("insert into messages (thread, text) values (?, ?)", rows)
            connection.execute("update threads set spoken = ? where number = ?", (offset, number))


class _Texts:
    """The messages in some lines, and the offset after the last line that was read."""

    def __init__(self, lines: Iterator[tuple[int, bytes]], offset: int, room: int) -> None:
        self._lines = lines
        self._room = room
        self._inputs: dict[str, str] = {}
        self.offset = offset

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        for end, piece in self._lines:
            if end <= self.offset:
                continue  # incomplete
            self.offset = end
            text = self._text(piece)
            if text and self._room > 0:
                return self._cut(text)
        raise StopIteration

    def waiting(self) -> list[str]:
        """Return the messages of input that no turn has consumed: no other line contains them."""
        return [self._cut(text) for text in self._inputs.values() if text and self._room > 0]

    def _cut(self, text: str) -> str:
        text = text[: min(MAX_CHARS, self._room)]
        self._room -= len(text)
        return text

    def _text(self, piece: bytes) -> str:
        if not any(word in piece for word in _WORDS):
            return ""
        line = decode_line(piece)
        mark = None if line is None else line.treadle
        if isinstance(mark, InputQueued):
            self._inputs[mark.id] = preview_of(mark.content)
            return ""
        if isinstance(mark, InputConsumed):
            self._inputs.pop(mark.id, None)
            return ""
        try:
            item = None if line is None else _message(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""
        if isinstance(item, UserMessageThreadItem):
            return preview(item)
        return item.text if isinstance(item, AgentMessageThreadItem) else ""


def _message(line: RolloutLine) -> ThreadItem | None:
    if isinstance(line.treadle, OwnEvent):
        is_item = line.treadle.method == "item/completed"
        return _item_completed.decode(line.treadle.params).item if is_item else None
    if line.type != "event_msg":
        return None
    payload = _payloads.decode(line.payload)
    if payload.get("type") in ("user_message", "agent_message"):
        return read_legacy(payload, lambda: "")
    stored = payload.get("item")
    return read_item(stored) if isinstance(stored, Mapping) else None
