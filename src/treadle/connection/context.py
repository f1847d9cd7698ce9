"""The context of a handler, besides its params."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from treadle.jsonrpc.envelope import Id

if TYPE_CHECKING:
    from treadle.connection.connection import Connection

S = TypeVar("S")


class Context(Generic[S]):
    """The caller of a handler, and the actions to run after its response."""

    __slots__ = ("_release", "actions", "connection", "request_id", "session", "size")

    def __init__(
        self,
        connection: Connection[S],
        session: S,
        request_id: Id | None,
        release: Callable[[], None] | None,
        size: int = 0,
    ) -> None:
        self.connection = connection
        self.session = session
        self.request_id = request_id
        # The size of the params and of the id.
        self.size = size
        self.actions: list[Callable[[], object]] = []
        self._release = release

    @property
    def answered_id(self) -> Id:
        """The id of the request; a notification has none."""
        if self.request_id is None:
            raise LookupError("a notification has no id")
        return self.request_id

    def after_reply(self, action: Callable[[], object]) -> None:
        """Call this when the response is queued, so that it precedes the work it announces."""
        self.actions.append(action)

    def release_scope(self) -> None:
        """Let the next request of this scope start, even if this one is not answered yet."""
        release, self._release = self._release, None
        if release is not None:
            release()
