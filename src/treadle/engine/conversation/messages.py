"""Makes messages with client ids idempotent: the same id and content is the same message."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from treadle.engine.errors import MessageConflict, TurnNotFound
from treadle.engine.events.log import EventLog
from treadle.engine.turn import ActiveTurn, PendingInput
from treadle.protocol.input import UserInput
from treadle.protocol.item import UserMessageThreadItem
from treadle.protocol.queue import QueuedSubmission
from treadle.protocol.turn import Turn as TurnSnapshot
from treadle.store.journal import StorageFailed
from treadle.store.records import ClientMessage, InputQueued


class _AcceptedInput(Struct, frozen=True):
    """Input whose acceptance a client has not been sent yet."""

    turn: ActiveTurn
    input_ids: Sequence[str]
    client_id: str | None


class ClientMessages:
    """The messages of one thread that have a client id, each with its turn."""

    def __init__(self, log: EventLog, known: dict[str, ClientMessage] | None = None) -> None:
        self._log = log
        self._known = dict(known or {})
        # The last accepted input, until `stored` waits for it.
        self._latest: _AcceptedInput | None = None
        self._past: dict[str, TurnSnapshot] = {}

    def add_past_turns(self, turns: Iterable[TurnSnapshot]) -> None:
        """Keep the turns, without items, that a repeated message may refer to."""
        ids = {known.turn_id for known in self._known.values()}
        for turn in turns:
            if turn.id in ids:
                self._past[turn.id] = msgspec.structs.replace(
                    turn, items=[], items_view="notLoaded"
                )

    def past_turn(self, turn_id: str) -> TurnSnapshot:
        """Return a turn that is over, without its items.

        Raises:
            TurnNotFound: the turn no longer exists.
        """
        turn = self._past.get(turn_id)
        if turn is None:
            raise TurnNotFound(turn_id)
        return turn

    def is_known(self, queued: QueuedSubmission) -> bool:
        """Whether a turn has received this input."""
        return queued.client_user_message_id in self._known

    def turn_of(self, client_id: str | None, content: list[UserInput]) -> str | None:
        """Return the turn that already received this message; `None` if it is new.

        Raises:
            MessageConflict: the id was used for other content.
        """
        known = self._known.get(client_id) if client_id is not None else None
        if known is None or client_id is None:
            return None
        if known.digest != _digest(content):
            raise MessageConflict(client_id)
        return known.turn_id

    def store(self, message: PendingInput, turn: ActiveTurn, inputs: Sequence[InputQueued]) -> None:
        """Store a turn's input, and remember its client id.

        Raises:
            StorageFailed: the input cannot be stored.
        """
        if message.client_id is None:
            self._log.store(*inputs)
        else:
            digest = _digest(message.content)
            record = ClientMessage(message.client_id, digest, turn.id, turn.kind)
            self._log.store(record, *inputs)
            self._known[message.client_id] = record
        self._latest = _AcceptedInput(turn, [each.id for each in inputs], message.client_id)

    async def stored(self) -> None:
        """Wait until the last accepted input is on the disk, with everything before it.

        Raises:
            StorageFailed: it is not; input that the turn has not consumed is withdrawn.
        """
        accepted, self._latest = self._latest, None
        try:
            # Others may wait for the same sync.
            await asyncio.shield(self._log.sync())
        except StorageFailed:
            if accepted is not None:
                self._withdraw(accepted)
            raise

    def _withdraw(self, accepted: _AcceptedInput) -> None:
        turn, ids = accepted.turn, accepted.input_ids
        for message in [message for message in turn.pending_input if message.id in ids]:
            turn.pending_input.remove(message)
            self._log.record(*message.consumed_records)
        if accepted.client_id is not None:
            self._known.pop(accepted.client_id, None)

    def forget_except(self, turns: Iterable[TurnSnapshot]) -> None:
        """Forget the messages that are in none of these turns: clients may send them again.

        An accepted message can be lost: its turn was rolled back, or the server died before the
        turn consumed it.
        """
        kept = {
            item.client_id
            for turn in turns
            for item in turn.items
            if isinstance(item, UserMessageThreadItem)
        }
        self._known = {id_: known for id_, known in self._known.items() if id_ in kept}


def _digest(content: list[UserInput]) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()
