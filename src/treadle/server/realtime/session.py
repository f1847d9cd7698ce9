"""A realtime conversation of a thread: one connection to the service, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from treadle.engine.conversation.input import message
from treadle.engine.conversation.sources import written_by
from treadle.engine.thread import LoadedThread
from treadle.model.base import ModelItem
from treadle.protocol import notifications as n
from treadle.protocol import realtime
from treadle.protocol.realtime import ConversationTextRole, RealtimeOutputModality
from treadle.server.realtime import service_events as service
from treadle.server.realtime.delegation import Delegation, NotRunning
from treadle.server.realtime.transcript import SpokenText
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.support.ids import uuid7
from treadle.support.text.secrets import Secrets, secrets_of_headers
from treadle.transport.base import Transport, TransportError
from treadle.transport.websocket.listener import connect_websocket

CONNECT_SECONDS: Final = 15.0
"""The time until the service has accepted the session."""

SEND_SECONDS: Final = 10.0
MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
"""The maximum size of a message of the service: a minute of audio in base64."""

MAX_LOUD_FAULTS: Final = 10
"""How many unreadable messages are warnings in the log; the service may send any number."""

MAX_TASKS: Final = 64
"""The maximum number of tasks at a time; the next message is read when one of them has ended."""

_STARTED: Final = (
    "<realtime_conversation>\nA realtime conversation has started. You work behind a voice model: "
    "the user does not see your answers, the voice model sums them up. Input arrives as a "
    "transcript, which may contain recognition errors. Work only if it is necessary, and answer "
    "briefly.\n</realtime_conversation>"
)
_ENDED: Final = (
    "<realtime_conversation>\nThe realtime conversation has ended: the user reads your answers "
    "again.\n</realtime_conversation>"
)

CloseReason: TypeAlias = Literal["requested", "error", "transport_closed"]

logger = logging.getLogger(__name__)


class ServiceFailed(Exception):
    """The service reported an error, after which the conversation ends."""


class ServiceAddress(Struct, frozen=True):
    """Where the service is, and what it needs for admission."""

    url: str
    headers: Mapping[str, str]
    # What no error may repeat, besides the headers.
    secrets: Sequence[str] = ()


class RealtimeOptions(Struct, frozen=True):
    """What the model of a session is like."""

    version: service.Version
    instructions: str
    voice: str
    modality: RealtimeOutputModality
    start_instructions: str = _STARTED
    end_instructions: str = _ENDED

    @property
    def notes(self) -> list[ModelItem]:
        """What the agent reads about the beginning and the end."""
        texts = (self.start_instructions, self.end_instructions)
        return [message("developer", text) for text in texts]


class RealtimeSession:
    """Forwards input to the service, and publishes what it says."""

    def __init__(
        self, thread: LoadedThread, options: RealtimeOptions, session_id: str | None = None
    ) -> None:
        self.id = session_id or thread.id
        self._thread = thread
        self._options = options
        self._text = SpokenText(thread.log, thread.id, self.id)
        self._tasks = BackgroundTasks()
        self._transport: Transport | None = None
        self._secrets = Secrets()
        # Frames of one call stay together.
        self._sending = asyncio.Lock()
        self._reason: CloseReason = "transport_closed"
        self._is_open = False
        # Ends the attempt to connect.
        self._opening: asyncio.Timeout | None = None
        self._faults = 0
        self._places = asyncio.Semaphore(MAX_TASKS)
        self._delegation = Delegation(thread, options.version, self._send)

    async def run(self, address: ServiceAddress) -> None:
        """Connect, and follow the conversation to its end."""
        self._secrets.add(secrets_of_headers(address.headers))
        self._secrets.add(address.secrets)
        try:
            if not self._is_stopped:
                async with asyncio.timeout(CONNECT_SECONDS) as self._opening:
                    transport = await self._connect(address)
                self._opening = None
                await self._follow(transport)
        except TimeoutError:
            self._fail(f"the realtime service did not answer within {CONNECT_SECONDS:g} s")
        except NotRunning:
            self._fail("the realtime service closed the connection")
        except (TransportError, ServiceFailed, ValueError) as error:
            self._fail(str(error))
        except Exception as error:  # task owner: the conversation ends, the thread goes on
            logger.exception("realtime conversation failed", extra={"thread_id": self._thread.id})
            self._fail(f"the realtime conversation failed: {type(error).__name__}")
        finally:
            self._opening = None
            await self._close()

    async def stop(self) -> None:
        """End the conversation, also one that the service has not accepted yet."""
        self._reason = "requested"
        if self._opening is not None and not self._opening.expired():
            self._opening.reschedule(asyncio.get_running_loop().time())
        if self._transport is not None:
            await self._transport.close()

    @property
    def _is_stopped(self) -> bool:
        return self._reason == "requested"

    # -- input

    async def append_audio(self, data: str) -> None:
        """Send audio of the user.

        Raises:
            NotRunning: the conversation has ended, or does so now.
        """
        await self._send([service.audio_input(data)])

    async def append_text(self, role: ConversationTextRole, text: str) -> None:
        """Send a text.

        Raises:
            NotRunning: the conversation has ended, or does so now.
        """
        await self._send([service.text_input(self._options.version, role, text)])

    async def append_speech(self, text: str) -> None:
        """Send a text that the model speaks.

        Raises:
            NotRunning: the conversation has ended, or does so now.
        """
        await self._send([service.report(self._options.version, None, text)])

    async def _send(self, frames: Sequence[bytes]) -> None:
        transport = self._transport
        if transport is None or not self._is_open:
            raise NotRunning("the realtime conversation has ended")
        try:
            async with asyncio.timeout(SEND_SECONDS), self._sending:
                await transport.send(frames)
        except (TimeoutError, TransportError) as error:
            await transport.close()
            raise NotRunning("the realtime service accepts no messages") from error

    # -- the connection

    async def _connect(self, address: ServiceAddress) -> Transport:
        transport = self._transport = await connect_websocket(
            address.url,
            headers=address.headers,
            open_timeout=CONNECT_SECONDS,
            limit=MAX_EVENT_BYTES,
        )
        options = self._options
        await transport.send(
            [
                service.configure(
                    options.version, options.instructions, options.voice, options.modality
                )
            ]
        )
        while frames := await transport.receive():
            for at, frame in enumerate(frames):
                event = self._read(frame)
                if isinstance(event, service.SessionOpened):
                    self._open()
                    await self._handle_all(frames[at + 1 :])
                    return transport
                if isinstance(event, service.ServiceFault):
                    raise ServiceFailed(event.message)
        raise TransportError("the realtime service closed the connection")

    def _open(self) -> None:
        self._is_open = True
        note = self._options.notes[0]
        self._thread.context.add_note(written_by("server", note))
        self._publish_item(
            realtime.RealtimeSessionStartedThreadRealtimeItem(
                id=uuid7(), realtime_session_id=self.id
            )
        )
        self._thread.log.publish_unstored(
            n.THREAD_REALTIME_STARTED,
            realtime.ThreadRealtimeStartedNotification(
                self._thread.id, self._options.version, self.id, self.id
            ),
        )

    async def _follow(self, transport: Transport) -> None:
        while frames := await transport.receive():
            await self._handle_all(frames)

    async def _handle_all(self, frames: Sequence[bytes | object]) -> None:
        for frame in frames:
            if self._is_stopped:
                return
            event = self._read(frame)
            if event is not None:
                await self._handle(event)
            # A service that sends without a pause must not keep others from running.
            await asyncio.sleep(0)

    def _read(self, frame: object) -> service.ServiceEvent | None:
        if not isinstance(frame, bytes):
            raise ServiceFailed("the realtime service sent a message that is too large")
        try:
            return service.read_event(frame, self._options.version)
        except service.UnreadableEvent as error:
            self._faults += 1
            level = logging.WARNING if self._faults <= MAX_LOUD_FAULTS else logging.DEBUG
            logger.log(level, "realtime event skipped", extra={"reason": str(error)})
            return None

    async def _handle(self, event: service.ServiceEvent) -> None:
        thread = self._thread
        match event:
            case service.SpokenDelta():
                self._text.add(event.role, event.delta)
            case service.SpokenEnd():
                self._text.end(event.role, event.text)
            case service.SpokenAudio():
                chunk = realtime.ThreadRealtimeAudioChunk(
                    event.data, event.channels, event.rate, event.item_id, event.samples
                )
                thread.log.publish_unstored(
                    n.THREAD_REALTIME_OUTPUT_AUDIO_DELTA,
                    realtime.ThreadRealtimeOutputAudioDeltaNotification(chunk, thread.id),
                )
            case service.AddedItem():
                self._publish_added(event.item)
            case service.AgentTask():
                await self._delegate(event)
            case service.Silence():
                await self._send(service.outputs(event.call_id, "", continues=False))
            case service.ServiceFault():
                self._reason = "error"
                raise ServiceFailed(event.message)
            case service.SessionOpened():
                pass

    async def _delegate(self, task: service.AgentTask) -> None:
        await self._places.acquire()
        said = self._text.take(task.input)
        self._publish_added(
            {
                "type": "handoff_request",
                "handoff_id": task.id,
                "item_id": task.item_id,
                "input_transcript": task.input,
                "active_transcript": [{"role": role, "text": text} for role, text in said],
            }
        )
        self._tasks.spawn(self._run_task(task, said), f"task {task.id[:100]}")

    async def _run_task(
        self, task: service.AgentTask, said: Sequence[tuple[service.Role, str]]
    ) -> None:
        try:
            await self._delegation.run(task, said)
        except NotRunning:
            return  # the conversation ends, and with it its reports
        finally:
            self._places.release()

    # -- the end

    def _fail(self, reason: str) -> None:
        if self._is_stopped:
            return  # the connection was closed on purpose
        self._reason = "error"
        error = realtime.ThreadRealtimeErrorNotification(
            self._secrets.redact(reason), self._thread.id
        )
        self._thread.log.publish_unstored(n.THREAD_REALTIME_ERROR, error)

    async def _close(self) -> None:
        was_open, self._is_open = self._is_open, False
        if self._transport is not None:
            await self._transport.close()
        await self._tasks.close()
        thread = self._thread
        if was_open:
            self._text.close()
            note = self._options.notes[1]
            thread.context.add_note(written_by("server", note))
            self._publish_item(
                realtime.RealtimeSessionClosedThreadRealtimeItem(
                    id=uuid7(),
                    realtime_session_id=self.id,
                    outcome="failed" if self._reason == "error" else "ended",
                )
            )
        thread.log.publish_unstored(
            n.THREAD_REALTIME_CLOSED,
            realtime.ThreadRealtimeClosedNotification(thread.id, self._reason),
        )

    def _publish_added(self, item: Mapping[str, object]) -> None:
        self._thread.log.publish_unstored(
            n.THREAD_REALTIME_ITEM_ADDED,
            realtime.ThreadRealtimeItemAddedNotification(dict(item), self._thread.id),
        )

    def _publish_item(self, item: realtime.ThreadRealtimeItem) -> None:
        """Publish an item that is complete at once."""
        self._thread.log.publish_unstored(
            n.THREAD_REALTIME_ITEM_STARTED,
            realtime.ThreadRealtimeItemStartedNotification(item, self._thread.id),
        )
        self._thread.log.publish_unstored(
            n.THREAD_REALTIME_ITEM_COMPLETED,
            realtime.ThreadRealtimeItemCompletedNotification(item, self._thread.id),
        )
