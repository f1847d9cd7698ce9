"""What has been said in a realtime conversation, and the items and notifications for it."""

from __future__ import annotations

from typing import Final

from treadle.engine.events.log import EventLog
from treadle.protocol import notifications as n
from treadle.protocol import realtime
from treadle.server.realtime.service_events import Role
from treadle.support.ids import uuid7

MAX_CHARS: Final = 64 * 1024
"""The maximum length of one segment, and of the part that a task contains."""


class SpokenText:
    """Publishes text as it is said; keeps what was said since the last task."""

    def __init__(self, log: EventLog, thread_id: str, session_id: str) -> None:
        self._log = log
        self._thread_id = thread_id
        self._session_id = session_id
        # The segments that are being said: their ids and texts.
        self._open: dict[Role, tuple[str, str]] = {}
        self._entries: list[tuple[Role, str]] = []

    def add(self, role: Role, delta: str) -> None:
        """Publish more text of one side."""
        id_, text = self._open.get(role) or self._begin(role)
        self._open[role] = id_, (text + delta)[:MAX_CHARS]
        self._note(role, delta)
        self._log.publish_unstored(
            n.THREAD_REALTIME_ITEM_TRANSCRIPT_DELTA,
            realtime.ThreadRealtimeItemTranscriptDeltaNotification(delta, id_, self._thread_id),
        )
        self._log.publish_unstored(
            n.THREAD_REALTIME_TRANSCRIPT_DELTA,
            realtime.ThreadRealtimeTranscriptDeltaNotification(delta, role, self._thread_id),
        )
        self._log.publish_unstored(
            n.THREAD_REALTIME_TRANSCRIPT_UPDATED,
            realtime.ThreadRealtimeTranscriptUpdatedNotification(role, delta, self._thread_id),
        )

    def end(self, role: Role, text: str) -> None:
        """Publish that one side has said all of a text."""
        if role not in self._open:
            self._begin(role)
            self._note(role, text)
        self._complete(role, text)
        self._log.publish_unstored(
            n.THREAD_REALTIME_TRANSCRIPT_DONE,
            realtime.ThreadRealtimeTranscriptDoneNotification(role, text, self._thread_id),
        )

    def close(self) -> None:
        """Complete what was being said."""
        for role in list(self._open):
            self._complete(role, self._open[role][1])

    def take(self, request: str) -> list[tuple[Role, str]]:
        """Return what was said since the last task, with the request of this one at its end."""
        entries, self._entries = self._entries, []
        return [*entries, ("user", request)]

    def _begin(self, role: Role) -> tuple[str, str]:
        self._open[role] = begun = uuid7(), ""
        self._publish(role, *begun, is_complete=False)
        return begun

    def _complete(self, role: Role, text: str) -> None:
        id_, _ = self._open.pop(role)
        self._publish(role, id_, text, is_complete=True)

    def _publish(self, role: Role, id_: str, text: str, *, is_complete: bool) -> None:
        item = realtime.TranscriptSegmentThreadRealtimeItem(
            id=id_, realtime_session_id=self._session_id, role=role, text=text
        )
        if is_complete:
            self._log.publish_unstored(
                n.THREAD_REALTIME_ITEM_COMPLETED,
                realtime.ThreadRealtimeItemCompletedNotification(item, self._thread_id),
            )
        else:
            self._log.publish_unstored(
                n.THREAD_REALTIME_ITEM_STARTED,
                realtime.ThreadRealtimeItemStartedNotification(item, self._thread_id),
            )

    def _note(self, role: Role, text: str) -> None:
        """Add text to what a task contains; the oldest makes room."""
        if self._entries and self._entries[-1][0] == role:
            text = self._entries.pop()[1] + text
        self._entries.append((role, text[-MAX_CHARS:]))
        while len(self._entries) > 1 and sum(len(each) for _, each in self._entries) > MAX_CHARS:
            del self._entries[0]
