"""From an incoming request to its one response: decode, guard, order, run, translate errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeAlias

from treadle.connection.context import Context, S
from treadle.connection.ordering import Lanes
from treadle.connection.router import Route, Router
from treadle.jsonrpc import envelope
from treadle.jsonrpc.envelope import Id, NotificationMessage, RequestMessage
from treadle.jsonrpc.errors import InternalError, Overloaded, RpcError
from treadle.jsonrpc.params import decode_params

if TYPE_CHECKING:
    from treadle.connection.connection import Connection

MAX_IN_FLIGHT: Final = 512

Put: TypeAlias = Callable[[bytes], None]
Spawn: TypeAlias = Callable[[Coroutine[None, None, None], str], None]

logger = logging.getLogger(__name__)


class Dispatcher(Generic[S]):
    """Answers the requests of one connection, each exactly once."""

    def __init__(
        self,
        connection: Connection[S],
        router: Router[S],
        *,
        put: Put,
        spawn: Spawn,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._connection = connection
        self._router = router
        self._put = put
        self._spawn = spawn
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._lanes = Lanes()

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
        self._in_flight += 1
        release = None if key is None else partial(self._lanes.leave, key)
        context = Context(self._connection, self._connection.session, call.id, release)
        start = partial(self._start, route, params, context)
        if key is None:
            start()
        else:
            self._lanes.enter(key, start)

    def fail(self, id_: Id | None, error: RpcError) -> None:
        """Answer with an error."""
        self._put(envelope.encode_error(id_, error.to_object()))

    def _admit(self, call: RequestMessage) -> tuple[Route[S], object]:
        if self._in_flight >= self._max_in_flight:
            raise Overloaded
        route = self._router.route(call.method)
        params = decode_params(route.method, call.params)
        if self._router.guard is not None:
            self._router.guard(self._connection.session, route.method, params)
        return route, params

    def _start(self, route: Route[S], params: object, context: Context[S]) -> None:
        if route.is_async:
            self._spawn(self._answer_later(route, params, context), route.method.method)
            return
        try:
            self._succeed(context, route.handler(context, params))
        except Exception as error:  # noqa: BLE001 - the dispatcher answers any failure
            self._refuse(context, error)
        finally:
            self._leave(context)

    async def _answer_later(self, route: Route[S], params: object, context: Context[S]) -> None:
        try:
            self._succeed(context, await route.handler(context, params))
        except Exception as error:  # noqa: BLE001 - the dispatcher answers any failure
            self._refuse(context, error)
        finally:
            self._leave(context)

    def _succeed(self, context: Context[S], result: object) -> None:
        self._put(envelope.encode_response(context.answered_id, result))
        for action in context.actions:
            try:
                action()
            except Exception:
                # Dispatcher: the response is sent; a second one would contradict it.
                logger.exception("action after a reply failed")

    def _refuse(self, context: Context[S], error: Exception) -> None:
        self.fail(context.answered_id, self._to_answer(error))

    def _to_answer(self, error: Exception) -> RpcError:
        translate = self._router.translate
        answer = error if isinstance(error, RpcError) else translate and translate(error)
        if answer is None:
            logger.error("handler failed", exc_info=error)
            answer = InternalError("internal error")
        return answer

    def _leave(self, context: Context[S]) -> None:
        self._in_flight -= 1
        context.release_scope()
