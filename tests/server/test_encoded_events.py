"""Events are encoded once for all of their subscribers, and only the latest are kept."""

from __future__ import annotations

import msgspec

from treadle.protocol.thread_manage import ThreadClosedNotification
from treadle.server.encoded_events import MAX_BYTES, MAX_EVENTS, EncodedEvents
from treadle.store.journal import Event


def event(seq: int, thread_id: str = "t") -> Event:
    return Event(seq, 1000 + seq, "thread/closed", ThreadClosedNotification(thread_id))


def test_an_event_is_encoded_once() -> None:
    events, closed = EncodedEvents(), event(7)
    first = events.encode(closed, 7)
    assert msgspec.json.decode(first) == {
        "method": "thread/closed",
        "params": {"threadId": "t"},
        "emittedAtMs": 1007,
        "seq": 7,
    }
    assert events.encode(closed, 7) is first


def test_equal_events_are_distinguished_by_identity() -> None:
    """Two threads may publish equal events with different numbers for their clients."""
    events, one, other = EncodedEvents(), event(7), event(7)
    assert b'"seq":7' in events.encode(one, 7)
    assert b'"seq"' not in events.encode(other, None)


def test_only_the_latest_events_are_kept() -> None:
    events, oldest = EncodedEvents(), event(0)
    first = events.encode(oldest, None)
    for seq in range(1, MAX_EVENTS + 1):
        events.encode(event(seq), seq)
    assert events.encode(oldest, None) is not first


def test_large_events_leave_no_room_for_older_ones() -> None:
    events, oldest = EncodedEvents(), event(0)
    first = events.encode(oldest, None)
    events.encode(event(1, "x" * MAX_BYTES), 1)
    assert events.encode(oldest, None) is not first
