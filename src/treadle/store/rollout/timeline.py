"""The state that a replay builds: turns with their items, and the model's view of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.protocol.error import TurnError
from treadle.protocol.item import ThreadItem
from treadle.protocol.turn import Turn, TurnStatus
from treadle.store.records import ModelItem


@dataclass(slots=True)
class OpenTurn:
    """A turn as far as it was read."""

    id: str
    # Where the model's view stood when the turn began: this list, up to there.
    history: list[ModelItem]
    length: int
    items: dict[str, ThreadItem] = field(default_factory=dict)
    status: TurnStatus = "inProgress"
    error: TurnError | None = None
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None
    root_turn_id: str | None = None
    # When each item began and was done, in milliseconds, as far as it was recorded.
    times: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)

    def to_turn(self) -> Turn:
        """Give the turn as the protocol has it."""
        return Turn(
            id=self.id,
            items=list(self.items.values()),
            status=self.status,
            completed_at=self.completed_at,
            duration_ms=self.duration_ms,
            error=self.error,
            root_turn_id=self.root_turn_id or self.id,
            started_at=self.started_at,
        )


class Timeline:
    """Turns in order; only the last may be without an end."""

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
        """Begin a turn, or find it if it began before; `unseen` items of the view are its own."""
        turn = self._by_id.get(turn_id)
        if turn is None:
            unfinished = self.current
            if unfinished is not None:
                # Its server died, and another one went on after it.
                unfinished.status = "interrupted"
            turn = OpenTurn(turn_id, self.history, len(self.history) - unseen)
            self.turns.append(turn)
            self._by_id[turn_id] = turn
        if turn.started_at is None:
            turn.started_at = started_at
        return turn

    def find(self, turn_id: str | None) -> OpenTurn | None:
        """Give the turn of this id, or the one in progress if no id is given."""
        return self.current if turn_id is None else self._by_id.get(turn_id)

    def add_item(self, turn_id: str, item: ThreadItem, done_ms: int | None = None) -> None:
        """Put an item into its turn; a later version of an item takes the place of the earlier."""
        turn = self._by_id.get(turn_id) or self.begin_turn(turn_id, None)
        turn.items[item.id] = item
        if done_ms is not None:
            turn.times[item.id] = (turn.times.get(item.id, (None, None))[0], done_ms)

    def note_start(self, turn_id: str, item_id: str, at_ms: int) -> None:
        """Note when an item began; one that is begun again after a restart began before."""
        turn = self._by_id.get(turn_id)
        if turn is not None:
            turn.times.setdefault(item_id, (at_ms, None))

    def replace_history(self, items: list[ModelItem]) -> None:
        """Go on with another view; turns remember the old one."""
        self.history = items

    def roll_back(self, num_turns: int | None, before_turn_id: str | None) -> None:
        """Drop the last turns, with what they added to the model's view."""
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
