"""What a client hears: the protocol's notifications, by short names and by the names of `on`.

A stream yields the notifications themselves, so that `match` tells them apart. One that this
version does not know is an `UnknownNotification`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from treadle.client._compat.lenient import read_anyhow
from treadle.protocol.base import JsonValue
from treadle.protocol.delta import (
    AgentMessageDeltaNotification as AgentMessageDelta,
)
from treadle.protocol.delta import (
    CommandExecutionOutputDeltaNotification as CommandOutputDelta,
)
from treadle.protocol.delta import (
    ReasoningSummaryTextDeltaNotification as ReasoningSummaryDelta,
)
from treadle.protocol.error import ErrorNotification as TurnErrorReported
from treadle.protocol.error import WarningNotification as Warned
from treadle.protocol.item import ItemCompletedNotification as ItemCompleted
from treadle.protocol.item import ItemStartedNotification as ItemStarted
from treadle.protocol.method import Notification
from treadle.protocol.notifications import SERVER_NOTIFICATIONS
from treadle.protocol.status import ThreadStatusChangedNotification as ThreadStatusChanged
from treadle.protocol.thread import ServerRequestResolvedNotification as AskResolved
from treadle.protocol.thread import ThreadStartedNotification as ThreadStarted
from treadle.protocol.turn import TurnCompletedNotification as TurnCompleted
from treadle.protocol.turn import TurnDiffUpdatedNotification as TurnDiffUpdated
from treadle.protocol.turn import TurnPlanUpdatedNotification as TurnPlanUpdated
from treadle.protocol.turn import TurnStartedNotification as TurnStarted
from treadle.protocol.usage import ThreadTokenUsageUpdatedNotification as TokenUsageUpdated

__all__ = [
    "FAULT",
    "AgentMessageDelta",
    "AskResolved",
    "CommandOutputDelta",
    "Event",
    "ItemCompleted",
    "ItemStarted",
    "OutputDelta",
    "ReasoningSummaryDelta",
    "TextDelta",
    "ThreadStarted",
    "ThreadStatusChanged",
    "TokenUsageUpdated",
    "TurnCompleted",
    "TurnDiffUpdated",
    "TurnErrorReported",
    "TurnPlanUpdated",
    "TurnStarted",
    "UnknownNotification",
    "Warned",
    "method_of",
    "reader_of",
    "unknown",
    "view_of",
]


class UnknownNotification(msgspec.Struct, frozen=True):
    """A notification that this version does not know; its ids are found where others have them."""

    method: str
    params: JsonValue
    thread_id: str | None = None
    turn_id: str | None = None


Event: TypeAlias = msgspec.Struct
"""A notification of `SERVER_NOTIFICATIONS`, or an `UnknownNotification`."""


class TextDelta(msgspec.Struct, frozen=True):
    """More text of a message, as `item:agentMessage:delta` gives it."""

    item_id: str
    text: str
    thread_id: str
    turn_id: str


class OutputDelta(msgspec.Struct, frozen=True):
    """More output of a command, as `item:commandExecution:outputDelta` gives it."""

    item_id: str
    output: str
    thread_id: str
    turn_id: str


class NotificationReader:
    """Reads one kind of notification, and finds the thread and the turn it belongs to."""

    __slots__ = ("_decode", "_kind", "is_news", "method", "thread_of", "turn_of")

    def __init__(self, notification: Notification[msgspec.Struct]) -> None:
        self.method = notification.method
        self._kind = notification.params
        self._decode = notification.params_decoder.decode
        self.thread_of = _finder(notification.params, "thread_id", "thread")
        self.turn_of = _finder(notification.params, "turn_id", "turn")
        # Of no thread and no command: of use only to those who listen.
        names = getattr(notification.params, "__struct_fields__", ())
        self.is_news = not {"thread_id", "thread", "turn_id", "turn", "process_id"} & {*names}

    def read(self, raw: msgspec.Raw | None) -> Event:
        """Read the params; what cannot be read at all is an unknown notification."""
        given = b"{}" if raw is None else raw
        try:
            return self._decode(given)
        except (msgspec.MsgspecError, ValueError):
            return self._read_anyhow(given)

    def _read_anyhow(self, raw: msgspec.Raw | bytes) -> Event:
        try:
            event = read_anyhow(self._kind, raw)
        except ValueError:
            return UnknownNotification(self.method, None)
        return event if isinstance(event, msgspec.Struct) else unknown(self.method, raw)


Find: TypeAlias = Callable[[Event], str | None]


def _finder(kind: object, id_name: str, owner: str) -> Find:
    names: tuple[str, ...] = getattr(kind, "__struct_fields__", ())
    if id_name in names:
        return attrgetter(id_name)
    if owner in names:
        return lambda event: getattr(getattr(event, owner, None), "id", None)
    return _nowhere


def _nowhere(_event: Event) -> None:
    return None


_readers: Final[dict[str, NotificationReader]] = {}


def reader_of(method: str) -> NotificationReader | None:
    """How to read a notification; `None` for one that no table knows."""
    reader = _readers.get(method)
    if reader is None and method in SERVER_NOTIFICATIONS:
        reader = _readers[method] = NotificationReader(SERVER_NOTIFICATIONS[method])
    return reader


def unknown(method: str, raw: msgspec.Raw | bytes | None) -> UnknownNotification:
    """Keep a notification that no table knows, with its ids if it has any."""
    try:
        params = None if raw is None else msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError):
        params = None
    fields = params if isinstance(params, dict) else {}
    turn = fields.get("turn")
    turn_id = fields.get("turnId", turn.get("id") if isinstance(turn, dict) else None)
    return UnknownNotification(method, params, _text(fields.get("threadId")), _text(turn_id))


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


View: TypeAlias = Callable[[Event], object]

FAULT: Final = "client/fault"
_METHODS: Final = {
    # The wire's `error` is about a turn; the name `error` stands for what befalls the client.
    "turn:error": "error",
    "error": FAULT,
}
_VIEWS: Final[dict[str, View]] = {
    "turn/started": attrgetter("turn"),
    "turn/completed": attrgetter("turn"),
    "item/started": attrgetter("item"),
    "item/completed": attrgetter("item"),
    "thread/started": attrgetter("thread"),
    "item/agentMessage/delta": lambda event: _delta(TextDelta, event),
    "item/commandExecution/outputDelta": lambda event: _delta(OutputDelta, event),
}


def _delta(kind: type[TextDelta | OutputDelta], event: JsonValue) -> TextDelta | OutputDelta:
    return kind(event.item_id, event.delta, event.thread_id, event.turn_id)


def method_of(name: str) -> str:
    """The method that a name like `item:agentMessage:delta` stands for."""
    return _METHODS.get(name) or name.replace(":", "/")


def view_of(method: str) -> View | None:
    """What listeners of this method are given, where it is not the notification itself."""
    return _VIEWS.get(method)
