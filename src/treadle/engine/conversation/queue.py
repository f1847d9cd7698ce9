"""Input for later turns of a thread: each becomes a turn when the one before it has completed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.errors import InvalidInput
from treadle.engine.events.log import EventLog
from treadle.protocol import notifications as n
from treadle.protocol.input import UserInput
from treadle.protocol.queue import QueuedSubmission, ThreadQueueChangedNotification
from treadle.store.records import QueueOrder, SubmissionQueued
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.turn import ActiveTurn

MAX_SUBMISSIONS: Final = 100
MAX_BYTES: Final = 4 * 1024 * 1024
"""The maximum size of the queue of one thread, as JSON."""


class SubmissionQueue:
    """The queued input of one thread; every change is stored and published."""

    def __init__(
        self, thread_id: str, log: EventLog, queued: Iterable[QueuedSubmission] = ()
    ) -> None:
        self._thread_id = thread_id
        self._log = log
        self._queued = list(queued)
        # Whether input has left the queue, and its turn has not begun yet.
        self.is_starting = False

    @property
    def submissions(self) -> Sequence[QueuedSubmission]:
        """The queued input, in the order of its turns."""
        return self._queued

    def add(
        self, client_id: str, content: list[UserInput], metadata: dict[str, str] | None
    ) -> QueuedSubmission:
        """Append input.

        Raises:
            InvalidInput: the input is empty, or the queue is full.
            StorageFailed: the input cannot be stored.
        """
        if not content:
            raise InvalidInput("input", "only user input can be added to the user-message queue")
        if len(self._queued) >= MAX_SUBMISSIONS:
            raise InvalidInput("threadId", f"the queue has {MAX_SUBMISSIONS} submissions already")
        added = QueuedSubmission(client_id, uuid7(), content, metadata)
        self._check_size([*self._queued, added])
        self._log.store(SubmissionQueued(added))
        self._set([*self._queued, added])
        return added

    def update(
        self, id_: str, content: list[UserInput], metadata: dict[str, str] | None
    ) -> QueuedSubmission:
        """Replace input that is still queued; empty metadata keeps that of before.

        Raises:
            InvalidInput: the input is empty or not queued, or the queue would be too large.
            StorageFailed: the input cannot be stored.
        """
        if not content:
            raise InvalidInput("input", "only user input can be added to the user-message queue")
        old = self.find(id_)
        changed = msgspec.structs.replace(
            old,
            input=content,
            responsesapi_client_metadata=metadata or old.responsesapi_client_metadata,
        )
        after = [changed if each.id == id_ else each for each in self._queued]
        self._check_size(after)
        self._log.store(SubmissionQueued(changed))
        self._set(after)
        return changed

    def remove(self, id_: str) -> bool:
        """Remove input; false if it is not queued.

        Raises:
            StorageFailed: the change cannot be stored.
        """
        after = [each for each in self._queued if each.id != id_]
        if len(after) == len(self._queued):
            return False
        self._order(after)
        return True

    def reorder(self, ids: Sequence[str]) -> None:
        """Set the order.

        Raises:
            InvalidInput: not every queued id is named once.
            StorageFailed: the order cannot be stored.
        """
        by_id = {each.id: each for each in self._queued}
        if len(ids) != len(by_id) or set(ids) != by_id.keys():
            reason = "queue reorder must include every queued submission exactly once"
            raise InvalidInput("queuedSubmissionIds", reason)
        self._order([by_id[id_] for id_ in ids])

    def find(self, id_: str | None) -> QueuedSubmission:
        """Return queued input by its id, or the first.

        Raises:
            InvalidInput: it is not queued, or nothing is.
        """
        found = next((each for each in self._queued if id_ in (None, each.id)), None)
        if found is None:
            raise InvalidInput("queuedSubmissionId", "no such queued submission")
        return found

    def continues_after(self, turn: ActiveTurn) -> bool:
        """Whether the first input becomes a turn now; an interrupt or a failure stops the queue."""
        return bool(self._queued) and turn.state == "completed" and not turn.ends_with_server

    def _check_size(self, queued: Sequence[QueuedSubmission]) -> None:
        size = len(msgspec.json.encode(queued))
        if size > MAX_BYTES:
            reason = f"the queue would have {size} bytes: expected at most {MAX_BYTES}"
            raise InvalidInput("input", reason)

    def _order(self, queued: list[QueuedSubmission]) -> None:
        self._log.store(QueueOrder([each.id for each in queued]))
        self._set(queued)

    def _set(self, queued: list[QueuedSubmission]) -> None:
        self._queued = queued
        self._log.publish(n.THREAD_QUEUE_CHANGED, ThreadQueueChangedNotification(self._thread_id))
