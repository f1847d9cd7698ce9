"""Server-sent events are complete, however their bytes arrive."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.model.http.sse import EventTooLarge, SseParser, decode_json, encode_json

STREAM = (
    "\ufeff: hello\r\n\r\n"
    'event: a\r\ndata: {"text":"grüße 🧵"}\r\n\r\n'
    ": keep-alive\n\n"
    "data:one\ndata: two\nid: 7\n\n"
    "data: data: three\r\rretry: 5\n\n"
    "event: data: not data\n\n\n"
    "data\n\n"
    "data: [DONE]\n\n"
).encode()
EXPECTED = [
    '{"text":"grüße 🧵"}'.encode(),
    b"one\ntwo",
    b"data: three",
    b"",
    b"[DONE]",
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_any_split_of_the_bytes_gives_the_same_events(cuts: list[int]) -> None:
    """Ours: chunks may end inside characters, line ends and blank lines."""
    parser = SseParser()
    places = [0, *sorted(cuts), len(STREAM)]
    events = []
    for start, end in pairwise(places):
        events += parser.feed(STREAM[start:end])
    assert [*events, *parser.finish()] == EXPECTED


def test_one_byte_at_a_time_gives_the_same_events() -> None:
    parser = SseParser()
    events = []
    for byte in STREAM:
        events += parser.feed(bytes([byte]))
    assert events == EXPECTED


def test_an_event_without_its_blank_line_is_delivered_at_the_end() -> None:
    parser = SseParser()
    assert parser.feed(b"data: 1\n\ndata: 2") == [b"1"]
    assert parser.finish() == [b"2"]
    assert parser.finish() == []


def test_an_event_of_8_mib_in_small_chunks_is_complete() -> None:
    payload = b'"' + b"x" * (8 * 1024 * 1024) + b'"'
    stream = b"data: " + payload + b"\n\n"
    parser = SseParser()
    events = []
    for at in range(0, len(stream), 16384):
        events += parser.feed(stream[at : at + 16384])
    assert events == [payload]


def test_an_event_that_never_ends_is_an_error() -> None:
    parser = SseParser(limit=100)
    parser.feed(b"data: " + b"x" * 90)
    with pytest.raises(EventTooLarge):
        parser.feed(b"xxxxx")


def test_lone_surrogates_and_invalid_utf_8_are_replaced() -> None:
    assert decode_json(rb'"a\ud83dz \ud83d\ude00 \\ud83d \uDE00"') == "a\ufffdz 😀 \\ud83d \ufffd"
    assert decode_json(b'"a\xff\xc3"') == "a\ufffd\ufffd"
    with pytest.raises(msgspec.DecodeError):
        decode_json(b"{")


def test_a_text_with_a_lone_surrogate_can_be_sent() -> None:
    assert msgspec.json.decode(encode_json({"a": "x\ud83d"})) == {"a": "x\ufffd"}
