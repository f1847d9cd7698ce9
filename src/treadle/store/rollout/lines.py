"""Encodes entries as rollout lines, for ourselves and for other programs.

Where possible, one entry is one line: the payload is for others, the key `treadle` for us.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.item import AgentMessageThreadItem, ItemCompletedNotification
from treadle.protocol.turn import TurnCompletedNotification, TurnStartedNotification
from treadle.store.journal import Entry, Event
from treadle.store.records import Compacted, HistoryItem, RolledBack, TurnContext, UsageRecord
from treadle.store.rollout.foreign.items import Json
from treadle.store.rollout.foreign.settings import write_error, write_turn_context, write_usage
from treadle.store.rollout.format import format_time
from treadle.store.rollout.item_lines import legacy_item, paginated_item
from treadle.support.clock import NowMs
from treadle.support.text.json_text import MAX_NESTING, encode_json, is_nested_deeper

Dialect: TypeAlias = Literal["legacy", "paginated"]
Payload: TypeAlias = tuple[str, JsonValue]

_COPY: Final = b'{"record":"copy"}'
_OURS: Final[Payload] = ("treadle", None)

_encode: Final = msgspec.json.Encoder().encode


def encode(value: object) -> bytes:
    """Encode a value as JSON that can be decoded again.

    A lone surrogate becomes a replacement character, and a value that is nested too deeply for a
    line becomes its text.
    """
    data = encode_json(value)
    if is_nested_deeper(data):
        data = _encode(_shallow(msgspec.json.decode(data), MAX_NESTING))
    return data


def _shallow(value: JsonValue, levels: int) -> JsonValue:
    if levels == 0:
        return _encode(value).decode() if isinstance(value, (list, dict)) else value
    if isinstance(value, list):
        return [_shallow(part, levels - 1) for part in value]
    if isinstance(value, dict):
        return {key: _shallow(part, levels - 1) for key, part in value.items()}
    return value


class LineWriter:
    """Writes entries in the line format of one file."""

    def __init__(
        self,
        clock: NowMs,
        *,
        dialect: Dialect = "legacy",
        ordinal: int = 0,
        turns: Sequence[str] = (),
    ) -> None:
        self._clock = clock
        self._dialect: Dialect = dialect
        self._ordinal = ordinal
        # Other programs roll back a number of turns where we name one.
        self._turns: Sequence[str] = tuple(turns)
        self._said: str | None = None
        self._second = (-1, b"")

    def mark(self) -> tuple[int, Sequence[str], str | None]:
        """Return a mark for `restore`, to discard lines that were not written."""
        return self._ordinal, self._turns, self._said

    def restore(self, mark: tuple[int, Sequence[str], str | None]) -> None:
        """Continue as if nothing had been encoded since the mark."""
        self._ordinal, self._turns, self._said = mark

    def lines(self, entries: Sequence[Entry]) -> bytes:
        """Encode entries, as one or more lines each."""
        # Joined once: an image in a message makes a line of many megabytes.
        pieces: list[bytes] = []
        for entry in entries:
            for parts in self._parts(entry):
                pieces += self._line(*parts)
        return b"".join(pieces)

    def first(self, payload: object, mark: object, at_ms: int) -> bytes:
        """Encode the first line of a file."""
        return b"".join(self._line(at_ms, ("session_meta", payload), [encode(mark)]))

    def _parts(self, entry: Entry) -> Iterator[tuple[int, Payload, Sequence[bytes] | None]]:
        match entry:
            case Event():
                first, *others = self._event(entry)
                yield entry.at_ms, first, _mark(entry)
                for payload in others:
                    yield entry.at_ms, payload, [_COPY]
            case HistoryItem():
                yield self._clock(), ("response_item", entry.item), None
            case Compacted():
                body = {"message": entry.message, "replacement_history": entry.replacement}
                yield self._clock(), ("compacted", body), None
            case TurnContext():
                yield self._clock(), ("turn_context", write_turn_context(entry)), [encode(entry)]
            case UsageRecord():
                yield self._clock(), ("event_msg", write_usage(entry)), [encode(entry)]
            case RolledBack():
                yield self._clock(), ("event_msg", self._roll_back(entry)), [encode(entry)]
            case _:
                yield self._clock(), _OURS, [encode(entry)]

    def _line(self, at_ms: int, payload: Payload, mark: Sequence[bytes] | None) -> list[bytes]:
        ordinal = b""
        if self._dialect == "paginated":
            ordinal = b'"ordinal":%d,' % self._ordinal
            self._ordinal += 1
        kind, body = payload
        head = b'{"timestamp":"%b",%b"type":"%b","payload":' % (
            self._timestamp(at_ms),
            ordinal,
            kind.encode(),
        )
        if mark is None:
            return [head, encode(body), b"}\n"]
        return [head, encode(body), b',"treadle":', *mark, b"}\n"]

    def _timestamp(self, at_ms: int) -> bytes:
        second, rest = divmod(at_ms, 1000)
        if self._second[0] != second:
            # Formatting dates is slow, and many events share a second.
            self._second = (second, format_time(second * 1000)[:-4].encode())
        return b"%b%03dZ" % (self._second[1], rest)

    def _event(self, event: Event) -> list[Payload]:
        match event.params:
            case ItemCompletedNotification() as done if event.method == n.ITEM_COMPLETED.method:
                return [("event_msg", part) for part in self._item(done)] or [_OURS]
            case TurnStartedNotification(turn=turn):
                self._turns = (*self._turns, turn.id)
                self._said = None
                at = event.at_ms // 1000 if turn.started_at is None else turn.started_at
                return [("event_msg", _task_started(turn.id, at))]
            case TurnCompletedNotification():
                return [("event_msg", self._turn_end(event.params))]
            case _:
                return [_OURS]

    def _item(self, done: ItemCompletedNotification) -> list[Json]:
        item = done.item
        if isinstance(item, AgentMessageThreadItem):
            self._said = item.text
        return legacy_item(done) if self._dialect == "legacy" else paginated_item(done)

    def _turn_end(self, params: TurnCompletedNotification) -> Json:
        turn = params.turn
        times = {
            "started_at": turn.started_at,
            "completed_at": turn.completed_at,
            "duration_ms": turn.duration_ms,
        }
        end: Json = {"turn_id": turn.id, "root_turn_id": turn.root_turn_id or turn.id, **times}
        if turn.status == "interrupted":
            return {"type": "turn_aborted", "reason": "interrupted", **end}
        if turn.error is not None:
            end["error"] = write_error(turn.error)
        return {"type": "task_complete", "last_agent_message": self._said, **end}

    def _roll_back(self, record: RolledBack) -> Json:
        count = record.num_turns
        if record.before_turn_id is not None and record.before_turn_id in self._turns:
            count = len(self._turns) - self._turns.index(record.before_turn_id)
        count = min(count or 0, len(self._turns))
        self._turns = self._turns[: len(self._turns) - count]
        return {"type": "thread_rolled_back", "num_turns": count}


def _mark(event: Event) -> Sequence[bytes]:
    head = b'{"record":"event","seq":%d,"at_ms":%d,"method":"%b","params":' % (
        event.seq,
        event.at_ms,
        event.method.encode(),
    )
    return head, encode(event.params), b"}"


def _task_started(turn_id: str, at: int) -> Json:
    return {
        "type": "task_started",
        "turn_id": turn_id,
        "root_turn_id": turn_id,
        "started_at": at,
        "model_context_window": None,
        "collaboration_mode_kind": "default",
    }
