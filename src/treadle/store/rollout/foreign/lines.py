"""Adds lines without our mark, written by other programs, to the timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from treadle.protocol.base import JsonValue
from treadle.protocol.item import ReasoningThreadItem, UserMessageThreadItem, with_times
from treadle.protocol.turn import TurnStatus
from treadle.protocol.usage import ThreadTokenUsage
from treadle.store.records import ModelItem, TurnContext
from treadle.store.rollout.foreign.items import is_legacy_item, read_item, read_legacy
from treadle.store.rollout.foreign.settings import read_error, read_turn_context, read_usage
from treadle.store.rollout.format import RolloutLine, parse_time
from treadle.store.rollout.timeline import OpenTurn, Timeline

Payload = Mapping[str, JsonValue]

# The model service never sees this key: the reference removes it before sending an item.
PRIVATE_KEY: Final = "internal_chat_message_metadata_passthrough"

_payloads: Final = msgspec.json.Decoder(dict[str, JsonValue])


class ForeignReader:
    """Reads lines by their payload; keeps the state that only such lines contain."""

    def __init__(self, timeline: Timeline, provider: str) -> None:
        self._timeline = timeline
        self._provider = provider
        self._items = 0
        self._reasoning: ReasoningThreadItem | None = None
        self.settings: TurnContext | None = None
        self.usage: ThreadTokenUsage | None = None
        self.response_ids: set[str] = set()

    def read(self, line: RolloutLine) -> None:
        """Read one line; unknown types are ignored."""
        reader = _READERS.get(line.type)
        if reader is not None:
            try:
                payload = _payloads.decode(line.payload)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return
            reader(self, payload, line)

    def _response_item(self, payload: dict[str, JsonValue], _line: RolloutLine) -> None:
        payload.pop(PRIVATE_KEY, None)
        self._timeline.history.append(payload)

    def _compacted(self, payload: dict[str, JsonValue], _line: RolloutLine) -> None:
        self._timeline.replace_history(replacement(payload))

    def _turn_context(self, payload: dict[str, JsonValue], _line: RolloutLine) -> None:
        context = read_turn_context(payload, self._provider, self.settings)
        self.settings = context or self.settings

    def _usage_record(self, payload: dict[str, JsonValue], _line: RolloutLine) -> None:
        response_id = payload.get("response_id")
        if isinstance(response_id, str):
            self.response_ids.add(response_id)

    def _event(self, payload: dict[str, JsonValue], line: RolloutLine) -> None:
        kind = payload.get("type")
        if not isinstance(kind, str):
            return
        handler = _EVENTS.get(kind)
        if handler is not None:
            handler(self, payload, line)
        elif is_legacy_item(kind):
            self._legacy_item(payload, line)

    def _task_started(self, payload: Payload, line: RolloutLine) -> None:
        started = _whole(payload.get("started_at")) or _seconds(line)
        turn = self._timeline.begin_turn(str(payload.get("turn_id")), started)
        root = payload.get("root_turn_id")
        turn.root_turn_id = root if isinstance(root, str) and root else turn.root_turn_id
        self._reasoning = None

    def _task_complete(self, payload: Payload, line: RolloutLine) -> None:
        error = read_error(payload.get("error"))
        self._end(payload, line, "completed" if error is None else "failed")

    def _turn_aborted(self, payload: Payload, line: RolloutLine) -> None:
        self._end(payload, line, "interrupted")

    def _end(self, payload: Payload, line: RolloutLine, status: TurnStatus) -> None:
        turn_id = payload.get("turn_id")
        turn = self._timeline.find(None if turn_id is None else str(turn_id))
        if turn is None:
            return
        turn.status = status
        turn.error = read_error(payload.get("error"))
        turn.completed_at = _whole(payload.get("completed_at")) or _seconds(line)
        turn.duration_ms = _whole(payload.get("duration_ms"))

    def _item_completed(self, payload: Payload, _line: RolloutLine) -> None:
        stored = payload.get("item")
        item = read_item(stored) if isinstance(stored, Mapping) else None
        if item is not None:
            times = _whole(payload.get("started_at_ms")), _whole(payload.get("completed_at_ms"))
            self._timeline.add_item(str(payload.get("turn_id")), with_times(item, *times))

    def _agent_reasoning(self, payload: Payload, line: RolloutLine) -> None:
        """Collect the parts of one summary, which come as separate consecutive events."""
        turn = self._turn(line)
        part, known = str(payload.get("text") or ""), self._reasoning
        if known is None or next(reversed(turn.items), None) != known.id:
            known = ReasoningThreadItem(id=self._new_id())
        if payload.get("type") == "agent_reasoning":
            known = msgspec.structs.replace(known, summary=[*known.summary, part])
        else:
            known = msgspec.structs.replace(known, content=[*known.content, part])
        self._reasoning = known
        turn.items[known.id] = known

    def _legacy_item(self, payload: Payload, line: RolloutLine) -> None:
        item = read_legacy(payload, self._new_id)
        if item is None:
            return
        unseen = 0
        if isinstance(item, UserMessageThreadItem) and self._timeline.current is None:
            # Without task_started, the turn begins here, just after the model received the message.
            unseen = min(1, len(self._timeline.history))
        self._turn(line, unseen).items[item.id] = item

    def _turn(self, line: RolloutLine, unseen: int = 0) -> OpenTurn:
        turn = self._timeline.current
        if turn is not None:
            return turn
        turn_id = f"turn-{len(self._timeline.turns) + 1}"
        return self._timeline.begin_turn(turn_id, _seconds(line), unseen=unseen)

    def _new_id(self) -> str:
        # The reference uses these names for items stored without an id.
        self._items += 1
        return f"item-{self._items}"

    def _token_count(self, payload: Payload, _line: RolloutLine) -> None:
        self.usage = read_usage(payload.get("info")) or self.usage

    def _rolled_back(self, payload: Payload, _line: RolloutLine) -> None:
        number = payload.get("num_turns")
        if _whole(number) is not None:
            self._timeline.roll_back(number, None)

    def _settings_applied(self, payload: Payload, _line: RolloutLine) -> None:
        settings = payload.get("thread_settings")
        provider = settings.get("model_provider_id") if isinstance(settings, Mapping) else None
        if isinstance(provider, str):
            self._provider = provider


def replacement(payload: Payload) -> list[ModelItem]:
    """Return the model context that a `compacted` line sets."""
    items = payload.get("replacement_history")
    if not isinstance(items, list):
        # Older lines have no replacement: only the summary remained.
        content = [{"type": "input_text", "text": str(payload.get("message") or "")}]
        return [{"type": "message", "role": "user", "content": content}]
    kept = [item for item in items if isinstance(item, dict)]
    for item in kept:
        item.pop(PRIVATE_KEY, None)
    return kept


def _whole(value: JsonValue) -> int | None:
    """Return a value if every JSON reader takes it for an integer."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and abs(value) < 1 << 53 else None


def _seconds(line: RolloutLine) -> int | None:
    ms = parse_time(line.timestamp)
    return None if ms is None else ms // 1000


Reader = Callable[[ForeignReader, dict[str, JsonValue], RolloutLine], None]

# Private to the class in this file: the tables only name its methods.
# ruff: noqa: SLF001
_READERS: Final[dict[str, Reader]] = {
    "response_item": ForeignReader._response_item,
    "compacted": ForeignReader._compacted,
    "turn_context": ForeignReader._turn_context,
    "token_usage_record": ForeignReader._usage_record,
    "event_msg": ForeignReader._event,
}

_EVENTS: Final[dict[str, Reader]] = {
    "task_started": ForeignReader._task_started,
    "turn_started": ForeignReader._task_started,
    "task_complete": ForeignReader._task_complete,
    "turn_complete": ForeignReader._task_complete,
    "turn_aborted": ForeignReader._turn_aborted,
    "item_completed": ForeignReader._item_completed,
    "agent_reasoning": ForeignReader._agent_reasoning,
    "agent_reasoning_raw_content": ForeignReader._agent_reasoning,
    "token_count": ForeignReader._token_count,
    "thread_rolled_back": ForeignReader._rolled_back,
    "thread_settings_applied": ForeignReader._settings_applied,
}
