"""The state that a replay builds: turns with their items, and the model context."""

from __future__ import annotations

from msgspec import UNSET, Struct, field

from treadle.protocol.error import TurnError
from treadle.protocol.item import ThreadItem, with_times
from treadle.protocol.turn import Turn, TurnStatus
from treadle.store.records import ModelItem


class OpenTurn(Struct):
    """A turn as read so far."""

    id: str
    # The model context at the start of the turn: this list, up to this length.
    history: list[ModelItem]
    length: int
    items: dict[str, ThreadItem] = field(default_factory=dict)
    status: TurnStatus = "inProgress"
    error: TurnError | None = None
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None
    root_turn_id: str | None = None
    # Start times of items in milliseconds, for items stored without their times.
    starts: dict[str, int] = field(default_factory=dict)

    def to_turn(self) -> Turn:
        """Return the protocol's turn."""
        return Turn(
            id=self.id,
            items=[_timed(item) for item in self.items.values()],
            status=self.status,
            completed_at=self.completed_at,
            duration_ms=self.duration_ms,
            error=self.error,
            root_turn_id=self.root_turn_id or self.id,
            started_at=self.started_at,
        )


def _timed(item: ThreadItem) -> ThreadItem:
    """Return an item whose times are null if they are unknown."""
    return with_times(item, None, None) if item.completed_at_ms is UNSET else item


class Timeline:
    """Turns in order; only the last one may have no end."""

    def __init__(self) -> None:
        self.turns: list[OpenTurn] = []
        self.history: list[ModelItem] = []
        self._by_id: dict[str, OpenTurn] = {}

    @property
    def current(self) -> OpenTurn | None:
        """The turn that has no end yet."""
        last = self.turns[-1] if self.turns else None
        return last if last is not None and last.status == "inProgress" else None

    def begin_turn(self, turn_id: str, started_at: int | None, *, unseen: int = 0) -> OpenTurn:
        """Begin a turn, or find a known one; it owns the last `unseen` items of the context."""
        turn = self._by_id.get(turn_id)
        if turn is None:
            unfinished = self.current
            if unfinished is not None:
                # Its server died, and another one continued after it.
                unfinished.status = "interrupted"
            turn = OpenTurn(turn_id, self.history, len(self.history) - unseen)
            self.turns.append(turn)
            self._by_id[turn_id] = turn
        if turn.started_at is None:
            turn.started_at = started_at
        return turn

    def find(self, turn_id: str | None) -> OpenTurn | None:
        """Return the turn with this id, or the one in progress if the id is `None`."""
        return self.current if turn_id is None else self._by_id.get(turn_id)

    def add_item(self, turn_id: str, item: ThreadItem, done_ms: int | None = None) -> None:
        """Add an item to its turn; a later version replaces an earlier one."""
        turn = self._by_id.get(turn_id) or self.begin_turn(turn_id, None)
        if item.completed_at_ms is UNSET:
            item = with_times(item, turn.starts.get(item.id), done_ms)
        turn.items[item.id] = item

    def note_start(self, turn_id: str, item_id: str, at_ms: int) -> None:
        """Record the start of an item; a second start after a restart does not change it."""
        turn = self._by_id.get(turn_id)
        if turn is not None:
            turn.starts.setdefault(item_id, at_ms)

    def replace_history(self, items: list[ModelItem]) -> None:
        """Continue with another model context; earlier turns keep the old one."""
        self.history = items

    def roll_back(self, num_turns: int | None, before_turn_id: str | None) -> None:
        """Drop the last turns, with what they added to the model context."""
        count = num_turns or 0
        if before_turn_id is not None:
            found = self._by_id.get(before_turn_id)
            count = 0 if found is None else len(self.turns) - self.turns.index(found)
        count = min(count, len(self.turns))
        if count <= 0:
            return
        first = self.turns[-count]
        self.history = first.history[: first.length]
        for turn in self.turns[-count:]:
            del self._by_id[turn.id]
        del self.turns[-count:]
