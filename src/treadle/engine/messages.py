"""The ids that clients give their messages: the same id and content are the same message."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from treadle.engine.errors import MessageConflict
from treadle.engine.turn import Message, Turn
from treadle.protocol.input import UserInput
from treadle.protocol.item import UserMessageThreadItem
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.store.journal import Journal
from treadle.store.records import ClientMessage, InputGiven


class ClientMessages:
    """The messages of one thread that came with an id, each with the turn that took it."""

    def __init__(self, journal: Journal, known: dict[str, ClientMessage] | None = None) -> None:
        self._journal = journal
        self._known = dict(known or {})

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

    def note(self, said: Message, turn: Turn, given: Sequence[InputGiven]) -> None:
        """Store what a turn is given, and remember its id for as long as the thread lives."""
        if said.client_id is None:
            self._journal.append(given)
            return
        record = ClientMessage(said.client_id, _digest(said.content), turn.id, turn.kind)
        self._journal.append([record, *given], sync=True)
        self._known[said.client_id] = record

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
