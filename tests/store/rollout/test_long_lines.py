"""A line of many megabytes, such as a message with an image, is assembled once."""

from __future__ import annotations

import tracemalloc

import msgspec

from treadle.protocol import notifications as n
from treadle.store.journal import Event
from treadle.store.rollout.lines import LineWriter

SIZE = 4 * 1024 * 1024


def started(text: str) -> Event:
    item = {"type": "agentMessage", "id": "i", "text": text}
    params = {"item": item, "threadId": "t", "turnId": "u", "startedAtMs": 1}
    method = n.ITEM_STARTED
    return Event(1, 1, method.method, msgspec.convert(params, method.params))


def test_a_long_event_is_copied_once_after_it_is_encoded() -> None:
    writer, event = LineWriter(lambda: 1), started("x" * SIZE)
    writer.lines([started("short")])
    tracemalloc.start()
    try:
        line = writer.lines([event])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert msgspec.json.decode(line)["treadle"]["params"]["item"]["text"] == "x" * SIZE
    # The buffer of the encoder, its result, and the line.
    assert peak < 2.8 * SIZE
