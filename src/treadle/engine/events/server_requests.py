"""The server requests of a thread: approvals, user input, elicitations, client tool calls.

A server request is stored before it is sent, goes to every subscriber, and is settled once: by the
first answer, by its deadline, by the call that opened it, or by the end of its turn. It survives
clients and the server: after a restart the call is repeated and finds its request open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct, field

from treadle.engine.events.log import EventLog, OpenedRequest
from treadle.engine.turn import ActiveTurn
from treadle.protocol import notifications as n
from treadle.protocol.method import Request
from treadle.protocol.status import ThreadActiveFlag
from treadle.protocol.thread import ServerRequestResolvedNotification
from treadle.store.journal import StorageFailed
from treadle.store.records import RequestAnswered, RequestOpened
from treadle.support.clock import NowMs

P = TypeVar("P", bound=msgspec.Struct)
R = TypeVar("R", bound=msgspec.Struct)

logger = logging.getLogger(__name__)


Refusal: TypeAlias = Literal["error", "nonsense", "deadline"]
"""Why there is no answer: an error, an invalid answer, or an expired deadline."""


class ServerRequestRefused(Exception):
    """No client gave a valid answer; `reason` is for people, `kind` for programs."""

    def __init__(self, reason: str, kind: Refusal = "error") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


class ServerRequest(Struct, eq=False):
    """One server request until it is settled."""

    id: str
    method: str
    # `None` if no turn is active.
    turn: ActiveTurn | None
    call_id: str
    flag: ThreadActiveFlag | None
    is_resumable: bool
    request_id: int
    answer: asyncio.Future[msgspec.Struct]
    event: OpenedRequest | None = None
    by: str = ""
    # Clients that have received the request and may still answer it.
    holders: set[object] = field(default_factory=set)
    # What each client does when the request is resolved, also one that is no longer subscribed.
    at_end: dict[object, Callable[[], None]] = field(default_factory=dict)
    refusal: ServerRequestRefused | None = None
    # Answered, though perhaps not on the disk yet.
    is_settled: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the request still waits for an answer."""
        return not (self.is_settled or self.answer.done())

    @property
    def is_durable(self) -> bool:
        """Whether its answer must be on the disk before it takes effect: a person decided."""
        return self.flag is not None


class ServerRequests(Struct):
    """The server requests of one thread."""

    thread_id: str
    log: EventLog
    # Numbers for all requests of the server: the same for all clients of a thread.
    ids: Iterator[int]
    on_change: Callable[[], None]
    clock: NowMs
    # The default timeout of a request; `None` means none.
    timeout_s: float | None = None
    # Requests that an earlier server left open, until their calls are repeated.
    left_open: dict[str, RequestOpened] = field(default_factory=dict)
    _open: dict[str, ServerRequest] = field(default_factory=dict)
    _by_number: dict[int, ServerRequest] = field(default_factory=dict)
    _is_suspended: bool = False

    async def send(
        self,
        method: Request[P, R],
        params: P,
        *,
        turn: ActiveTurn | None,
        key: str,
        call_id: str | None = None,
        flag: ThreadActiveFlag | None = None,
        before: Callable[[], None] | None = None,
        default: R | None = None,
        timeout_s: float | None = None,
        resumable: bool = True,
    ) -> R:
        """Send a request to every subscriber; the first answer wins.

        `key` is unique in the turn; `call_id` names the model's call that opens the request, if
        that is not the key. `before` is called after the status change and before the request is
        sent. A request that is not `resumable` may come from a task that outlives the turn.

        Raises:
            ServerRequestRefused: the answer was an error or invalid, none came and there is no
                default, or the request or its answer could not be stored.
        """
        request = ServerRequest(
            id=key if turn is None else f"{turn.id}/{key}",
            method=method.method,
            turn=turn,
            call_id=call_id or key,
            flag=flag,
            is_resumable=resumable,
            request_id=next(self.ids),
            answer=asyncio.get_running_loop().create_future(),
        )
        if turn is not None:
            turn.check_storable()
        # The session decodes an answer as the method's result before it calls `answer`.
        answer = cast("asyncio.Future[R]", request.answer)
        limit = self._open_request(request, params, before, timeout_s or self.timeout_s)
        if turn is not None and not resumable:
            turn.at_end(lambda: self._void(request))
        try:
            async with asyncio.timeout(limit):
                return await asyncio.shield(answer)
        except TimeoutError:
            if request.is_open:
                self._expire(request, default)
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._abandon(request)
            raise

    @property
    def open(self) -> Sequence[ServerRequest]:
        """The requests that wait for an answer, oldest first."""
        return list(self._open.values())

    def open_events(self) -> Sequence[OpenedRequest]:
        """Return the open requests, for a client that has not received them."""
        return [request.event for request in self._open.values() if request.event is not None]

    def flags(self) -> list[ThreadActiveFlag]:
        """Return what the thread waits for."""
        return sorted({request.flag for request in self._open.values() if request.flag is not None})

    def answer(self, request_id: int, result: msgspec.Struct, by: str) -> bool:
        """Accept an answer; false if the request is already settled."""
        request = self._by_number.get(request_id)
        if request is None or not request.is_open:
            return False
        request.by = by
        self._settle(request, result)
        return True

    def hold(self, request_id: int, holder: object, at_end: Callable[[], None]) -> None:
        """Register that a client has received the request; `at_end` is called at its end."""
        request = self._by_number.get(request_id)
        if request is not None:
            request.holders.add(holder)
            request.at_end[holder] = at_end

    def refuse(self, request_id: int, reason: str, by: str, kind: Refusal = "error") -> None:
        """Accept an error or an invalid answer.

        It takes effect when no other client has the request: a client that cannot answer must not
        decide for one that can.
        """
        request = self._by_number.get(request_id)
        if request is not None and request.is_open:
            request.by = by
            request.refusal = ServerRequestRefused(reason, kind)

    def release(self, request_id: int, holder: object) -> None:
        """Register that others no longer wait for a client, which may still answer the request."""
        request = self._by_number.get(request_id)
        if request is None:
            return
        request.holders.discard(holder)
        if request.refusal is not None and not request.holders and request.is_open:
            self._settle(request, request.refusal)

    def leave(self, request_id: int, holder: object) -> None:
        """Register that a client can no longer answer the request."""
        request = self._by_number.get(request_id)
        if request is not None:
            request.at_end.pop(holder, None)
            self.release(request_id, holder)

    def waiting_calls(self) -> set[str]:
        """Return the calls whose answer may come after a restart."""
        return {request.call_id for request in self._open.values() if request.is_resumable}

    def suspend(self) -> None:
        """Keep the open requests for the next server, which sends them again."""
        self._is_suspended = True

    def close(self) -> None:
        """End the requests that another server cannot resume."""
        for request in self.open:
            if not request.is_resumable:
                self._void(request)

    def was_left_open(self, turn: ActiveTurn, key: str) -> bool:
        """Whether an earlier server waited for an answer to this request."""
        return f"{turn.id}/{key}" in self.left_open

    def _open_request(
        self,
        request: ServerRequest,
        params: msgspec.Struct,
        before: Callable[[], None] | None,
        limit: float | None,
    ) -> float | None:
        """Store and send the request; return its timeout in seconds."""
        self._open[request.id] = request
        self._by_number[request.request_id] = request
        logger.debug("server request opened", extra=self._for_logs(request))
        self.on_change()
        if before is not None:
            before()
        known = self.left_open.pop(request.id, None)
        now = self.clock()
        if known is not None and known.deadline_ms is not None:
            # Never longer than before: the wall clock may have been set back.
            limit_ms = known.deadline_ms - max(now, known.opened_at_ms or 0)
            limit = max(0.0, limit_ms / 1000)
        opened = RequestOpened(
            id=request.id,
            kind="resumable" if request.is_resumable else "bound",
            method=request.method,
            params=msgspec.to_builtins(params),
            turn_id=None if request.turn is None else request.turn.id,
            call_id=request.call_id,
            opened_at_ms=now,
            deadline_ms=None if limit is None else now + int(limit * 1000),
        )
        records = () if known is not None else (opened,)
        try:
            request.event = self.log.open_request(
                request.method, params, request.request_id, lambda: request.is_open, records
            )
        except StorageFailed as failure:
            self._forget(request)
            self.log.on_failure(failure)
            self.on_change()
            raise ServerRequestRefused(f"the request cannot be stored: {failure}") from failure
        return limit

    def _expire(self, request: ServerRequest, default: msgspec.Struct | None) -> None:
        request.by = "deadline"
        self._settle(request, default or ServerRequestRefused("no answer came in time", "deadline"))

    def _abandon(self, request: ServerRequest) -> None:
        """End a request whose caller was cancelled."""
        if not request.is_open:
            return
        if request.is_resumable and self._is_suspended:
            request.answer.cancel()
            return
        if request.is_resumable or (request.turn is not None and request.turn.is_stopping):
            self._end_with_turn(request)
        else:
            # An MCP server withdrew it or died; the turn continues.
            request.by = "withdrawn"
            self._settle(request, ServerRequestRefused("the request was withdrawn"))

    def _void(self, request: ServerRequest) -> None:
        """End a request that is still open when its turn or the thread ends."""
        if request.is_open:
            request.answer.set_exception(ServerRequestRefused("the turn is over"))
            self._end_with_turn(request)

    def _end_with_turn(self, request: ServerRequest) -> None:
        request.by = "end of turn"
        request.is_settled = True
        request.answer.cancel()
        self._forget(request)
        self.log.record(RequestAnswered(request.id, request.by, self.clock(), None))
        if request.turn is None or request.turn.is_over:
            self._publish_resolved(request)
        else:
            # Clients receive the end of the turn first.
            request.turn.after_end(lambda: self._publish_resolved(request))

    def _settle(
        self, request: ServerRequest, outcome: msgspec.Struct | ServerRequestRefused
    ) -> None:
        """Store the outcome, then apply it; an outcome that cannot be stored is a denial."""
        request.is_settled = True
        self._forget(request)
        answer = None if isinstance(outcome, ServerRequestRefused) else msgspec.to_builtins(outcome)
        try:
            self.log.store(RequestAnswered(request.id, request.by, self.clock(), answer))
        except StorageFailed as failure:
            self._deny(request, failure)
            return
        if answer is None or not request.is_durable:
            self._conclude(request, outcome)
            return
        synced = self.log.sync()
        if synced.done():
            self._on_synced(request, outcome, synced)
        else:
            synced.add_done_callback(partial(self._on_synced, request, outcome))

    def _on_synced(
        self,
        request: ServerRequest,
        outcome: msgspec.Struct | ServerRequestRefused,
        synced: asyncio.Future[None],
    ) -> None:
        failure = None if synced.cancelled() else synced.exception()
        if isinstance(failure, StorageFailed):
            self._deny(request, failure)
        else:
            self._conclude(request, outcome)

    def _deny(self, request: ServerRequest, failure: StorageFailed) -> None:
        """Discard an answer that could not be stored, and fail the turn."""
        self.log.on_failure(failure)
        self.log.record(RequestAnswered(request.id, "storage failure", self.clock(), None))
        self._conclude(request, ServerRequestRefused(f"the answer cannot be stored: {failure}"))

    def _conclude(
        self, request: ServerRequest, outcome: msgspec.Struct | ServerRequestRefused
    ) -> None:
        """Return the outcome to the caller and publish that the request is resolved."""
        if not request.answer.done():
            if isinstance(outcome, ServerRequestRefused):
                request.answer.set_exception(outcome)
                request.answer.exception()  # retrieved here: the caller may have been cancelled
            else:
                request.answer.set_result(outcome)
        self._publish_resolved(request)
        self.on_change()

    def _forget(self, request: ServerRequest) -> None:
        # Another request may have the same id by now: it stays open.
        if self._open.get(request.id) is request:
            del self._open[request.id]
        self._by_number.pop(request.request_id, None)

    def _for_logs(self, request: ServerRequest) -> dict[str, object]:
        return {
            "thread_id": self.thread_id,
            "turn_id": None if request.turn is None else request.turn.id,
            "item_id": request.call_id,
            "method": request.method,
            "request_id": request.request_id,
        }

    def _publish_resolved(self, request: ServerRequest) -> None:
        about = {**self._for_logs(request), "by": request.by}
        logger.debug("server request resolved", extra=about)
        at_end, request.at_end = request.at_end, {}
        for action in at_end.values():
            action()
        params = ServerRequestResolvedNotification(request.request_id, self.thread_id)
        self.log.publish(n.SERVER_REQUEST_RESOLVED, params)
