"""The index over what was said in threads; brought up to date when somebody searches."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
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
from treadle.store.database import Database
from treadle.store.foreign_items import read_item, read_legacy
from treadle.store.replay import preview
from treadle.store.rollout import Line, OwnEvent, decode_line

logger = logging.getLogger(__name__)

MAX_CHARS: Final = 64 * 1024
# Lines without any of these words hold no message, and need not be decoded.
_WORDS: Final = (
    b'"user_message"',
    b'"agent_message"',
    b'"UserMessage"',
    b'"AgentMessage"',
)

_payloads: Final = msgspec.json.Decoder(dict[str, JsonValue])
_item_completed: Final = msgspec.json.Decoder(ItemCompletedNotification)


class Speech:
    """Enters the messages of threads, each once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def refresh(self) -> None:
        """Enter what was said since the last time."""
        with self._database.lock:
            behind = self._database.connection.execute(
                "select number, threads.path, spoken from threads"
                " join files on files.path = threads.path where spoken <> size"
            ).fetchall()
        for number, path, spoken in behind:
            self._take(number, Path(path), spoken)

    def _take(self, number: int, path: Path, spoken: int) -> None:
        try:
            with path.open("rb") as file:
                file.seek(spoken)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        texts = [(number, text[:MAX_CHARS]) for text in _texts(whole)]
        with self._database.writing() as connection:
            connection.executemany("insert into messages (thread, text) values (?, ?)", texts)
            connection.execute(
                "update threads set spoken = ? where number = ?", (spoken + len(whole), number)
            )


def _texts(data: bytes) -> Iterator[str]:
    for piece in data.splitlines():
        if any(word in piece for word in _WORDS):
            line = decode_line(piece)
            item = None if line is None else _message(line)
            if isinstance(item, UserMessageThreadItem):
                yield preview(item)
            elif isinstance(item, AgentMessageThreadItem):
                yield item.text


def _message(line: Line) -> ThreadItem | None:
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
