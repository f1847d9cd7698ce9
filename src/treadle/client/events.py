"""The protocol's notifications under short names, and the event names of `on`.

A stream yields the notifications themselves, so that `match` distinguishes them by type. A
notification that this version does not know is an `UnknownNotification`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from treadle.client._compat.lenient import read_leniently
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
from treadle.protocol.thread import ServerRequestResolvedNotification as ServerRequestResolved
from treadle.protocol.thread import ThreadStartedNotification as ThreadStarted
from treadle.protocol.turn import TurnCompletedNotification as TurnCompleted
from treadle.protocol.turn import TurnDiffUpdatedNotification as TurnDiffUpdated
from treadle.protocol.turn import TurnPlanUpdatedNotification as TurnPlanUpdated
from treadle.protocol.turn import TurnStartedNotification as TurnStarted
from treadle.protocol.usage import ThreadTokenUsageUpdatedNotification as TokenUsageUpdated

__all__ = [
    "FAULT",
    "AgentMessageDelta",
    "CommandOutputDelta",
    "Event",
    "ItemCompleted",
    "ItemStarted",
    "OutputDelta",
    "ReasoningSummaryDelta",
    "ServerRequestResolved",
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
    """A notification that this version does not know, with the thread and turn ids it carries."""

    method: str
    params: JsonValue
    thread_id: str | None = None
    turn_id: str | None = None


Event: TypeAlias = msgspec.Struct
"""A notification of `SERVER_NOTIFICATIONS`, or an `UnknownNotification`."""


class TextDelta(msgspec.Struct, frozen=True):
    """A piece of a message's text, for listeners of `item:agentMessage:delta`."""

    item_id: str
    text: str
    thread_id: str
    turn_id: str


class OutputDelta(msgspec.Struct, frozen=True):
    """A piece of a command's output, for listeners of `item:commandExecution:outputDelta`."""

    item_id: str
    output: str
    thread_id: str
    turn_id: str


class NotificationReader:
    """Decodes one kind of notification and extracts its thread id and turn id."""

    __slots__ = ("_decode", "_kind", "is_global", "method", "thread_of", "turn_of")

    def __init__(self, notification: Notification[msgspec.Struct]) -> None:
        self.method = notification.method
        self._kind = notification.params
        self._decode = notification.params_decoder.decode
        self.thread_of = _finder(notification.params, "thread_id", "thread")
        self.turn_of = _finder(notification.params, "turn_id", "turn")
        # Without a thread, a turn or a command: only listeners and streams use it.
        names = getattr(notification.params, "__struct_fields__", ())
        self.is_global = not {"thread_id", "thread", "turn_id", "turn", "process_id"} & {*names}

    def read(self, raw: msgspec.Raw | None) -> Event:
        """Decode the params; return an `UnknownNotification` if that is impossible."""
        document = b"{}" if raw is None else raw
        try:
            return self._decode(document)
        except (msgspec.MsgspecError, ValueError):
            return self._read_leniently(document)

    def _read_leniently(self, raw: msgspec.Raw | bytes) -> Event:
        try:
            event = read_leniently(self._kind, raw)
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
    return _no_id


def _no_id(_event: Event) -> None:
    return None


_readers: Final[dict[str, NotificationReader]] = {}


def reader_of(method: str) -> NotificationReader | None:
    """Return the reader of a notification, or `None` if the protocol does not define it."""
    reader = _readers.get(method)
    if reader is None and method in SERVER_NOTIFICATIONS:
        reader = _readers[method] = NotificationReader(SERVER_NOTIFICATIONS[method])
    return reader


def unknown(method: str, raw: msgspec.Raw | bytes | None) -> UnknownNotification:
    """Wrap a notification that the protocol does not define, with its ids if it has any."""
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
    # On the wire, `error` belongs to a turn. Listeners of `error` receive the client's failures.
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
    """Return the method of an event name such as `item:agentMessage:delta`."""
    return _METHODS.get(name) or name.replace(":", "/")


def view_of(method: str) -> View | None:
    """Return the conversion that listeners of a method need; `None` passes the notification."""
    return _VIEWS.get(method)
