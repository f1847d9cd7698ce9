"""The decoder for uninitialized peers: one message per call, and no large ones."""

from __future__ import annotations

import pytest

from treadle.jsonrpc.framing import HEAD_BYTES, Oversized
from treadle.transport.websocket.frames import (
    MAX_FRAGMENTS,
    Binary,
    Decoder,
    Encoder,
    Event,
    Ping,
    Violation,
)

LIMIT = 64 * 1024
encoder = Encoder(lambda: b"\1\2\3\4")


def strict() -> Decoder:
    return Decoder(masked=True, limit=LIMIT, is_strict=True)


def text(message: bytes) -> bytes:
    return b"".join(encoder.text(message))


def drained(decoder: Decoder, data: bytes) -> list[list[Event]]:
    """Feed data once, and continue for as long as there is more."""
    calls = [decoder.feed(data)]
    while decoder.has_more:
        calls.append(decoder.feed(b""))
    return calls


def test_each_call_reports_one_message_and_the_control_frames_before_it() -> None:
    ping = encoder.ping(b"p")
    data = text(b"one") + ping + text(b"two") + b"\x82\x81\1\2\3\4x" + text(b"three")

    assert drained(strict(), data) == [[b"one"], [Ping(b"p"), b"two"], [Binary(1)], [b"three"]]


@pytest.mark.parametrize("step", [1, 7, 4096, 10**6])
def test_oversized_message_is_reported_before_it_ends(step: int) -> None:
    whole = text(b"x" * (LIMIT + 1))
    cut = whole[: HEAD_BYTES + 100]
    decoder = strict()
    events: list[Event] = []
    for start in range(0, len(cut), step):
        events += decoder.feed(cut[start : start + step])

    assert events == [Oversized(LIMIT + 1, b"x" * HEAD_BYTES, LIMIT)]
    assert decoder.feed(whole) == []


def test_oversized_message_in_fragments_is_reported_when_it_grows_too_large() -> None:
    small = Encoder(lambda: b"\1\2\3\4", max_frame=1000)
    data = b"".join(small.text(b"y" * (LIMIT + 500)))
    (event,) = strict().feed(data)

    assert event == Oversized(66_000, b"y" * HEAD_BYTES, LIMIT)


def test_large_binary_message_is_a_violation_as_soon_as_it_begins() -> None:
    head = b"\x82\xff" + (2**40).to_bytes(8) + b"\1\2\3\4"
    assert strict().feed(head + b"z") == [Violation(1009, "binary message too large")]


def test_limits_can_be_lifted_in_the_middle_of_the_data() -> None:
    decoder = strict()
    large = b"z" * (2 * LIMIT)
    assert decoder.feed(text(b"initialize") + text(large)) == [b"initialize"]
    decoder.is_strict, decoder.limit = False, 4 * LIMIT

    assert decoder.feed(b"") == [large]


@pytest.mark.parametrize("is_strict", [False, True])
def test_message_of_too_many_fragments_is_a_violation(is_strict: bool) -> None:
    decoder = Decoder(masked=True, is_strict=is_strict)
    data = b"\x01\x80\1\2\3\4" + b"\x00\x80\1\2\3\4" * MAX_FRAGMENTS

    assert decoder.feed(data) == [Violation(1008, "too many fragments")]


def test_frames_beyond_the_step_wait_for_the_next_call() -> None:
    decoder = Decoder(masked=True)
    data = text(b"a") * 5
    assert decoder.feed(data, 2) == [b"a"] * 2
    assert decoder.has_more
    assert decoder.feed(b"", 2) == [b"a"] * 2
    assert decoder.feed(b"", 2) == [b"a"]
    assert not decoder.has_more
