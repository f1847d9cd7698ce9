"""Questions to the clients: approvals, choices, forms, calls of their tools.

A question is stored before it is put, goes to every client that listens, and is settled once: by
the first answer, by its deadline, by whoever put it, or by the end of its turn. It outlives its
clients, and the server: the call that asked is then run again and finds its question open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, TypeVar, cast

import msgspec

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
"""Why there is no answer: the client said so, it cannot be read, or none came in time."""


class ServerRequestRefused(Exception):
    """Nobody gave an answer that can be used; `reason` says why, `kind` says it to programs."""

    def __init__(self, reason: str, kind: Refusal = "error") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


@dataclass(slots=True, eq=False)
class ServerRequest:
    """One question from its putting to its settling."""

    id: str
    method: str
    # Null if it is put while none runs.
    turn: ActiveTurn | None
    call_id: str
    flag: ThreadActiveFlag | None
    is_resumable: bool
    request_id: int
    answer: asyncio.Future[msgspec.Struct]
    event: OpenedRequest | None = None
    by: str = ""
    # Clients that have the question and may still answer it.
    holders: set[object] = field(default_factory=set)
    refusal: ServerRequestRefused | None = None
    # Answered, though perhaps not on the disk yet.
    is_settled: bool = False

    @property
    def is_open(self) -> bool:
        """Whether an answer is still waited for."""
        return not (self.is_settled or self.answer.done())

    @property
    def is_durable(self) -> bool:
        """Whether its answer must be on the disk before it counts: a person decided."""
        return self.flag is not None


@dataclass(slots=True)
class ServerRequests:
    """The questions of one thread."""

    thread_id: str
    log: EventLog
    # Numbers for all questions of the server: clients of one thread agree on them.
    ids: Iterator[int]
    on_change: Callable[[], None]
    clock: NowMs
    # How long a question stays open when nothing else is said of it; null is for ever.
    deadline_s: float | None = None
    # Questions that an earlier server left open, until the call that put them is run again.
    left: dict[str, RequestOpened] = field(default_factory=dict)
    _open: dict[str, ServerRequest] = field(default_factory=dict)
    _by_number: dict[int, ServerRequest] = field(default_factory=dict)
    _is_suspended: bool = False

    async def ask(
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
        deadline_s: float | None = None,
        resumable: bool = True,
    ) -> R:
        """Ask every client that listens; the first answer wins.

        `key` is unique in the turn; `call_id` names the call of the model that asks, where that
        is not the key. `before` is called when the thread is known to wait and nobody has been
        asked yet. One that is not `resumable` may be put by a task that outlives the turn.

        Raises:
            AskRefused: the answer was an error or nonsense, none came and there is no default, or
                the disk takes neither the question nor the answer.
        """
        ask = ServerRequest(
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
        # What clients answer is decoded as the method's result before it comes here.
        answer = cast("asyncio.Future[R]", ask.answer)
        limit = self._put(ask, params, before, deadline_s or self.deadline_s)
        if turn is not None and not resumable:
            turn.at_end(lambda: self._void(ask))
        try:
            async with asyncio.timeout(limit):
                return await asyncio.shield(answer)
        except TimeoutError:
            if ask.is_open:
                self._expire(ask, default)
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._abandon(ask)
            raise

    @property
    def open(self) -> Sequence[ServerRequest]:
        """The questions that wait for an answer, oldest first."""
        return list(self._open.values())

    def open_events(self) -> Sequence[OpenedRequest]:
        """The open questions, for a client that has not been asked them."""
        return [ask.event for ask in self._open.values() if ask.event is not None]

    def flags(self) -> list[ThreadActiveFlag]:
        """What the thread waits for."""
        return sorted({ask.flag for ask in self._open.values() if ask.flag is not None})

    def answer(self, request_id: int, result: msgspec.Struct, by: str) -> bool:
        """Take an answer; false if the question was settled before."""
        ask = self._by_number.get(request_id)
        if ask is None or not ask.is_open:
            return False
        ask.by = by
        self._settle(ask, result)
        return True

    def hold(self, request_id: int, holder: object) -> None:
        """Note that a client has the question."""
        ask = self._by_number.get(request_id)
        if ask is not None:
            ask.holders.add(holder)

    def refuse(self, request_id: int, reason: str, by: str, kind: Refusal = "error") -> None:
        """Take an error, or an answer that cannot be read.

        It counts when no other client has the question: one that cannot answer must not speak
        for one that can.
        """
        ask = self._by_number.get(request_id)
        if ask is not None and ask.is_open:
            ask.by = by
            ask.refusal = ServerRequestRefused(reason, kind)

    def let_go(self, request_id: int, holder: object) -> None:
        """Note that a client will not answer the question any more."""
        ask = self._by_number.get(request_id)
        if ask is None:
            return
        ask.holders.discard(holder)
        if ask.refusal is not None and not ask.holders and ask.is_open:
            self._settle(ask, ask.refusal)

    def waiting_calls(self) -> set[str]:
        """The calls that wait for an answer which may come after a restart."""
        return {ask.call_id for ask in self._open.values() if ask.is_resumable}

    def suspend(self) -> None:
        """Leave the open questions as they are: another server will put them again."""
        self._is_suspended = True

    def close(self) -> None:
        """Let go of the questions that nobody else can go on with."""
        for ask in self.open:
            if not ask.is_resumable:
                self._void(ask)

    def was_left_open(self, turn_id: str, call_id: str) -> bool:
        """Whether an earlier server waited for an answer to this call."""
        return any(
            record.turn_id == turn_id and (record.call_id or record.id) == call_id
            for record in self.left.values()
        )

    def was_left(self, turn: ActiveTurn, key: str) -> bool:
        """Whether an earlier server waited for an answer to this very question."""
        return f"{turn.id}/{key}" in self.left

    def _put(
        self,
        ask: ServerRequest,
        params: msgspec.Struct,
        before: Callable[[], None] | None,
        limit: float | None,
    ) -> float | None:
        """Store the question and put it; gives the seconds that are left for an answer."""
        self._open[ask.id] = ask
        self._by_number[ask.request_id] = ask
        self.on_change()
        if before is not None:
            before()
        known = self.left.pop(ask.id, None)
        now = self.clock()
        if known is not None and known.deadline_ms is not None:
            # Never more than it had: the wall clock may have been set back since.
            limit_ms = known.deadline_ms - max(now, known.opened_at_ms or 0)
            limit = max(0.0, limit_ms / 1000)
        opened = RequestOpened(
            id=ask.id,
            kind="resumable" if ask.is_resumable else "bound",
            method=ask.method,
            params=msgspec.to_builtins(params),
            turn_id=None if ask.turn is None else ask.turn.id,
            call_id=ask.call_id,
            opened_at_ms=now,
            deadline_ms=None if limit is None else now + int(limit * 1000),
        )
        records = () if known is not None else (opened,)
        try:
            ask.event = self.log.open_request(
                ask.method, params, ask.request_id, lambda: ask.is_open, records
            )
        except StorageFailed as failure:
            self._forget(ask)
            self.log.on_failure(failure)
            self.on_change()
            raise ServerRequestRefused(f"the request cannot be stored: {failure}") from failure
        return limit

    def _expire(self, ask: ServerRequest, default: msgspec.Struct | None) -> None:
        ask.by = "deadline"
        self._settle(ask, default or ServerRequestRefused("no answer came in time", "deadline"))

    def _abandon(self, ask: ServerRequest) -> None:
        """Whoever put the question waits no more: nobody needs to answer it."""
        if not ask.is_open:
            return
        if ask.is_resumable and self._is_suspended:
            ask.answer.cancel()
            return
        if ask.is_resumable or (ask.turn is not None and ask.turn.is_stopping):
            self._end_with_turn(ask)
        else:
            # An MCP server took it back, or has died with it; the turn goes on.
            ask.by = "withdrawn"
            self._settle(ask, ServerRequestRefused("the request was withdrawn"))

    def _void(self, ask: ServerRequest) -> None:
        """Let a question go that is still open when its turn, or the thread, ends."""
        if ask.is_open:
            ask.answer.set_exception(ServerRequestRefused("the turn is over"))
            self._end_with_turn(ask)

    def _end_with_turn(self, ask: ServerRequest) -> None:
        ask.by = "end of turn"
        ask.is_settled = True
        ask.answer.cancel()
        self._forget(ask)
        self.log.record(RequestAnswered(ask.id, ask.by, self.clock(), None))
        if ask.turn is None or ask.turn.is_over:
            self._tell_resolved(ask)
        else:
            # Clients hear how the turn ended first.
            ask.turn.after_end(lambda: self._tell_resolved(ask))

    def _settle(self, ask: ServerRequest, outcome: msgspec.Struct | ServerRequestRefused) -> None:
        """Store who settled it and how; then it counts. What cannot be stored is a denial."""
        ask.is_settled = True
        self._forget(ask)
        answer = None if isinstance(outcome, ServerRequestRefused) else msgspec.to_builtins(outcome)
        try:
            self.log.store(RequestAnswered(ask.id, ask.by, self.clock(), answer))
        except StorageFailed as failure:
            self._deny(ask, failure)
            return
        if answer is None or not ask.is_durable:
            self._conclude(ask, outcome)
            return
        synced = self.log.sync()
        if synced.done():
            self._on_synced(ask, outcome, synced)
        else:
            synced.add_done_callback(partial(self._on_synced, ask, outcome))

    def _on_synced(
        self,
        ask: ServerRequest,
        outcome: msgspec.Struct | ServerRequestRefused,
        synced: asyncio.Future[None],
    ) -> None:
        failure = None if synced.cancelled() else synced.exception()
        if isinstance(failure, StorageFailed):
            self._deny(ask, failure)
        else:
            self._conclude(ask, outcome)

    def _deny(self, ask: ServerRequest, failure: StorageFailed) -> None:
        """Let an answer that is not on the disk be none, and its turn fail."""
        self.log.on_failure(failure)
        self.log.record(RequestAnswered(ask.id, "storage failure", self.clock(), None))
        self._conclude(ask, ServerRequestRefused(f"the answer cannot be stored: {failure}"))

    def _conclude(self, ask: ServerRequest, outcome: msgspec.Struct | ServerRequestRefused) -> None:
        """Pass an outcome on, publish that there is one, and be active again."""
        if not ask.answer.done():
            if isinstance(outcome, ServerRequestRefused):
                ask.answer.set_exception(outcome)
                ask.answer.exception()  # the call that asked may have been cancelled meanwhile
            else:
                ask.answer.set_result(outcome)
        self._tell_resolved(ask)
        self.on_change()

    def _forget(self, ask: ServerRequest) -> None:
        # Another question may have taken the id: that one stays open.
        if self._open.get(ask.id) is ask:
            del self._open[ask.id]
        self._by_number.pop(ask.request_id, None)

    def _tell_resolved(self, ask: ServerRequest) -> None:
        params = ServerRequestResolvedNotification(ask.request_id, self.thread_id)
        self.log.publish(n.SERVER_REQUEST_RESOLVED, params)
