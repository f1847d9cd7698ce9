"""Starts the turns of queued input."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import UNSET

from treadle.engine.conversation.input import read_files
from treadle.engine.errors import EngineError, InvalidInput
from treadle.engine.events.intake import input_stored
from treadle.protocol import notifications as n
from treadle.protocol.error import WarningNotification
from treadle.protocol.turn import TurnStartParams
from treadle.store.journal import JournalClosed, StorageFailed

if TYPE_CHECKING:
    from treadle.engine.thread import AcceptedTurn, LoadedThread

logger = logging.getLogger(__name__)


async def accept_queued(thread: LoadedThread, id_: str | None = None) -> AcceptedTurn:
    """Accept queued input for a turn, the first if none is named; the caller starts it.

    The input leaves the queue after the turn has stored it; a server that is killed in between
    recognizes it by its client id.

    Raises:
        InvalidInput: it is not queued, a file of it cannot be read, or the thread is busy.
        StorageFailed: the turn cannot be stored; the input stays in the queue.
    """
    queue = thread.queue
    if thread.turn is not None or queue.is_starting:
        raise InvalidInput("threadId", "thread already has an active or pending turn")
    queue.is_starting = True
    try:
        queued = queue.find(id_)
        metadata = queued.responsesapi_client_metadata
        params = TurnStartParams(
            queued.input,
            thread.id,
            client_user_message_id=queued.client_user_message_id,
            responsesapi_client_metadata=None if metadata is UNSET else metadata,
        )
        workers, readable = thread.services.file_workers, thread.context.readable
        files = await read_files(params.input, workers, readable)
        if thread.turn is not None:
            raise InvalidInput("threadId", "thread already has an active or pending turn")
        accepted = thread.begin_turn(params, files=files)
        queue.remove(queued.id)
        await input_stored(thread, accepted)
        return accepted
    finally:
        queue.is_starting = False


async def continue_queue(thread: LoadedThread) -> None:
    """Start the next turn of the queue; input that cannot become a turn stays, with a warning."""
    try:
        (await accept_queued(thread)).start()
    except (EngineError, StorageFailed, JournalClosed) as error:
        text = f"the queue of the thread waits: {error}"
        thread.log.publish(n.WARNING, WarningNotification(text, thread.id))
    except Exception:  # task owner: the queue stays as it is
        logger.exception("queued turn not started", extra={"thread_id": thread.id})
