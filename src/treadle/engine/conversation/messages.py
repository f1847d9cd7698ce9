"""The ids that clients give their messages: the same id and content are the same message."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from treadle.engine.errors import MessageConflict, TurnNotFound
from treadle.engine.events.log import EventLog
from treadle.engine.turn import ActiveTurn, Message
from treadle.protocol.input import UserInput
from treadle.protocol.item import UserMessageThreadItem
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.store.journal import StorageFailed
from treadle.store.records import ClientMessage, InputGiven


@dataclass(frozen=True, slots=True)
class _Noted:
    """Input that a client waits to hear accepted."""

    turn: ActiveTurn
    input_ids: Sequence[str]
    client_id: str | None


class ClientMessages:
    """The messages of one thread that came with an id, each with the turn that took it."""

    def __init__(self, log: EventLog, known: dict[str, ClientMessage] | None = None) -> None:
        self._log = log
        self._known = dict(known or {})
        # What was noted last, until `stored` is asked to wait for it.
        self._latest: _Noted | None = None
        self._past: dict[str, TurnSnapshot] = {}

    def recall(self, turns: Iterable[TurnSnapshot]) -> None:
        """Remember the turns, without their items, that a message which is sent again may mean."""
        ids = {known.turn_id for known in self._known.values()}
        for turn in turns:
            if turn.id in ids:
                self._past[turn.id] = msgspec.structs.replace(
                    turn, items=[], items_view="notLoaded"
                )

    def past_turn(self, turn_id: str) -> TurnSnapshot:
        """A turn that is over, without its items.

        Raises:
            TurnNotFound: it is gone.
        """
        turn = self._past.get(turn_id)
        if turn is None:
            raise TurnNotFound(turn_id)
        return turn

    def turn_of(self, client_id: str | None, content: list[UserInput]) -> str | None:
        """The turn that took this message before; `None` if it is new.

        Raises:
            MessageConflict: the id was used for other content.
        """
        known = self._known.get(client_id) if client_id is not None else None
        if known is None or client_id is None:
            return None
        if known.digest != _digest(content):
            raise MessageConflict(client_id)
        return known.turn_id

    def note(self, said: Message, turn: ActiveTurn, given: Sequence[InputGiven]) -> None:
        """Store what a turn is given, and remember its id for as long as the thread lives.

        Raises:
            StorageFailed: it cannot be stored, and is not given.
        """
        if said.client_id is None:
            self._log.store(*given)
        else:
            record = ClientMessage(said.client_id, _digest(said.content), turn.id, turn.kind)
            self._log.store(record, *given)
            self._known[said.client_id] = record
        self._latest = _Noted(turn, [each.id for each in given], said.client_id)

    async def stored(self) -> None:
        """Wait until what was noted last is on the disk, with everything before it.

        Raises:
            StorageFailed: it is not, and is withdrawn as far as the turn has not taken it up.
        """
        noted, self._latest = self._latest, None
        try:
            # Others may wait for the same sync.
            await asyncio.shield(self._log.sync())
        except StorageFailed:
            if noted is not None:
                self._withdraw(noted)
            raise

    def _withdraw(self, noted: _Noted) -> None:
        turn, ids = noted.turn, noted.input_ids
        for said in [said for said in turn.waiting if said.id in ids]:
            turn.waiting.remove(said)
            self._log.record(*said.taken)
        if noted.client_id is not None:
            self._known.pop(noted.client_id, None)

    def keep(self, turns: Iterable[TurnSnapshot]) -> None:
        """Forget the messages that are in none of these turns, so that they may be sent again.

        A message can be noted and yet be lost: its turn was rolled back, or the server died
        before the turn could take it up.
        """
        heard = {
            item.client_id
            for turn in turns
            for item in turn.items
            if isinstance(item, UserMessageThreadItem)
        }
        self._known = {id_: known for id_, known in self._known.items() if id_ in heard}


def _digest(content: list[UserInput]) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()
