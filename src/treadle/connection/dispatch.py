"""From an incoming request to its one response: decode, guard, order, run, translate errors.

The memory of a connection is bounded by these rules: no handler starts while the peer leaves a full
queue of answers unread, few requests with large answers run at once, and the params and ids of the
requests that are not answered yet have a limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeAlias

from treadle.connection.context import Context, S
from treadle.connection.ordering import Lanes
from treadle.connection.outbound import Outbound
from treadle.connection.router import Route, Router
from treadle.jsonrpc import envelope
from treadle.jsonrpc.envelope import Id, NotificationMessage, RequestMessage
from treadle.jsonrpc.errors import InternalError, Overloaded, RpcError
from treadle.jsonrpc.params import decode_params

if TYPE_CHECKING:
    from treadle.connection.connection import Connection

MAX_IN_FLIGHT: Final = 512
MAX_IN_FLIGHT_BYTES: Final = 128 * 1024 * 1024
"""The limit on the params and ids of all requests of one peer that are not answered yet."""

MAX_LARGE_ANSWERS: Final = 2
"""How many requests whose answers may be large run at once for one peer."""

MAX_STEP_STARTS: Final = 32
"""How many postponed requests are started before other tasks get their turn."""

Spawn: TypeAlias = Callable[[Coroutine[None, None, None], str], None]

logger = logging.getLogger(__name__)

MAX_LOGGED_ID: Final = 64


class Dispatcher(Generic[S]):
    """Answers the requests of one connection, each exactly once."""

    def __init__(
        self,
        connection: Connection[S],
        router: Router[S],
        *,
        outbound: Outbound,
        spawn: Spawn,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._connection = connection
        self._router = router
        self._outbound = outbound
        self._spawn = spawn
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._lanes = Lanes()
        self._large = asyncio.Semaphore(MAX_LARGE_ANSWERS)
        # Requests that wait for room in the queue of answers, oldest first.
        self._postponed: deque[Callable[[], None]] = deque()
        self._is_starting = False

    @property
    def in_flight(self) -> int:
        """The number of requests that are not answered yet."""
        return self._in_flight

    def on_notice(self, notice: NotificationMessage) -> None:
        """Handle a notification; unknown ones are ignored."""
        entry = self._router.notice(notice.method)
        if entry is None:
            return
        method, handler = entry
        context = Context(self._connection, self._connection.session, None, None)
        try:
            handler(context, decode_params(method, notice.params))
        except RpcError as error:
            logger.warning("refused a notification", extra={"method": method.method})
            logger.debug("refused because", extra={"reason": error.message})
        except Exception:  # dispatcher: a notification has no response, and the connection lives
            logger.exception("handler failed")

    def on_call(self, call: RequestMessage) -> None:
        """Start a request; it is answered now or when its handler is done."""
        try:
            route, params = self._admit(call)
            scope = route.method.scope
            key = None if scope is None else scope(params)
        except Exception as error:  # noqa: BLE001 - any failure in routing is answered too
            self.fail(call.id, self._to_answer(error))
            return
        size = _kept_size(call)
        self._in_flight += 1
        self._in_flight_bytes += size
        about = {
            "request_id": _short(call.id),
            "method": route.method.method,
            "peer": self._connection.peer,
        }
        thread_id = getattr(params, "thread_id", None)
        logger.debug("request received", extra={**about, "thread_id": thread_id})
        release = None if key is None else partial(self._lanes.leave, key)
        context = Context(self._connection, self._connection.session, call.id, release, size)
        if key is None:
            self._start(route, params, context)
        else:
            self._lanes.enter(key, partial(self._start, route, params, context))

    def fail(self, id_: Id | None, error: RpcError) -> None:
        """Answer with an error."""
        self._outbound.put(envelope.encode_error(id_, error.to_object()))

    def _admit(self, call: RequestMessage) -> tuple[Route[S], object]:
        if self._in_flight >= self._max_in_flight:
            raise Overloaded
        # A message within the limit of the transport is never too large on its own.
        waiting = self._in_flight_bytes
        if waiting and waiting + _kept_size(call) > MAX_IN_FLIGHT_BYTES:
            raise Overloaded
        route = self._router.route(call.method)
        params = decode_params(route.method, call.params)
        if self._router.guard is not None:
            self._router.guard(self._connection.session, route.method, params)
        return route, params

    def _start(self, route: Route[S], params: object, context: Context[S]) -> None:
        if self._postponed or not self._outbound.has_room:
            self._postpone(partial(self._run, route, params, context))
        else:
            self._run(route, params, context)

    def _postpone(self, run: Callable[[], None]) -> None:
        self._postponed.append(run)
        if not self._is_starting:
            self._is_starting = True
            self._spawn(self._start_postponed(), "postponed requests")

    async def _start_postponed(self) -> None:
        started = 0
        while self._postponed:
            await self._outbound.room()
            # Removed only now: a request that arrives meanwhile must queue behind this one.
            self._postponed[0]()
            self._postponed.popleft()
            started += 1
            if started % MAX_STEP_STARTS == 0:
                await asyncio.sleep(0)
        self._is_starting = False

    def _run(self, route: Route[S], params: object, context: Context[S]) -> None:
        if route.is_async:
            answer = self._answer_large if route.method.is_large else self._answer_later
            self._spawn(answer(route, params, context), route.method.method)
            return
        try:
            self._succeed(context, route.handler(context, params))
        except Exception as error:  # noqa: BLE001 - the dispatcher answers any failure
            self._refuse(context, error)
        finally:
            self._leave(context)

    async def _answer_large(self, route: Route[S], params: object, context: Context[S]) -> None:
        """Answer when earlier large answers have been queued and the peer has read most of them."""
        async with self._large:
            await self._outbound.room()
            await self._answer_later(route, params, context)

    async def _answer_later(self, route: Route[S], params: object, context: Context[S]) -> None:
        try:
            self._succeed(context, await route.handler(context, params))
        except Exception as error:  # noqa: BLE001 - the dispatcher answers any failure
            self._refuse(context, error)
        finally:
            self._leave(context)

    def _succeed(self, context: Context[S], result: object) -> None:
        logger.debug("request answered", extra={"request_id": _short(context.answered_id)})
        self._outbound.put(envelope.encode_response(context.answered_id, result))
        for action in context.actions:
            try:
                action()
            except Exception:
                # Dispatcher: the response is sent; a second one would contradict it.
                logger.exception("action after a reply failed")

    def _refuse(self, context: Context[S], error: Exception) -> None:
        answer = self._to_answer(error)
        about = {"request_id": _short(context.answered_id), "code": answer.code}
        logger.debug("request refused", extra=about)
        self.fail(context.answered_id, answer)

    def _to_answer(self, error: Exception) -> RpcError:
        translate = self._router.translate
        answer = error if isinstance(error, RpcError) else translate and translate(error)
        if answer is None:
            logger.error("handler failed", exc_info=error)
            answer = InternalError("internal error")
        return answer

    def _leave(self, context: Context[S]) -> None:
        self._in_flight -= 1
        self._in_flight_bytes -= context.size
        context.release_scope()


def _short(id_: Id) -> Id:
    """Return an id for logs; a peer may choose one of any length."""
    return id_[:MAX_LOGGED_ID] if isinstance(id_, str) else id_


def _kept_size(call: RequestMessage) -> int:
    """Return how much of a request is kept until it is answered: a peer chooses its id freely."""
    id_size = len(call.id) if isinstance(call.id, str) else 0
    return id_size + len(call.params or b"")
