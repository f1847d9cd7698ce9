"""Splitting a stream into lines: the chunks it arrives in never matter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.jsonrpc.framing import HEAD_BYTES, Frame, LineSplitter, Oversized

LIMIT = 40

lines = st.lists(st.binary(max_size=2 * LIMIT).map(lambda line: line.replace(b"\n", b"\r")))


def split(chunks: Sequence[bytes], limit: int = LIMIT) -> list[Frame]:
    splitter = LineSplitter(limit)
    frames = [frame for chunk in chunks for frame in splitter.feed(chunk)]
    return frames + splitter.finish()


def expected(stream: bytes) -> list[Frame]:
    return [
        line if len(line) <= LIMIT else Oversized(len(line), line[:HEAD_BYTES])
        for line in stream.split(b"\n")
        if line not in (b"", b"\r")
    ]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(lines, st.lists(st.integers(min_value=0)))
def test_any_split_of_the_bytes_gives_the_same_frames(
    content: list[bytes], places: list[int]
) -> None:
    stream = b"\n".join(content)
    assert split(cut(stream, places)) == expected(stream)


@given(st.integers(LIMIT - 2, LIMIT + 2), st.lists(st.integers(min_value=0)))
def test_any_split_around_the_limit_gives_the_same_frames(size: int, places: list[int]) -> None:
    stream = b"a\n" + b"b" * size + b"\nc\n"
    assert split(cut(stream, places)) == expected(stream)


@given(st.integers(LIMIT + 1, 3 * HEAD_BYTES), st.lists(st.integers(min_value=0), max_size=8))
def test_the_head_of_an_oversized_line_does_not_depend_on_the_chunks(
    size: int, places: list[int]
) -> None:
    line = (b"0123456789" * (size // 10 + 1))[:size]
    assert split(cut(line + b"\n", places)) == [Oversized(size, line[:HEAD_BYTES])]


def test_bytes_that_arrive_one_by_one_make_the_same_lines() -> None:
    stream = b"one\r\n\ntwo\n" + b"x" * 100 + b"\nlast"
    assert split([bytes([byte]) for byte in stream]) == [
        b"one\r",
        b"two",
        Oversized(100, b"x" * 100),
        b"last",
    ]


def test_a_line_as_long_as_the_limit_is_complete() -> None:
    assert split([b"x" * LIMIT + b"\n"]) == [b"x" * LIMIT]


def test_an_oversized_line_is_not_kept_while_it_streams_in() -> None:
    splitter = LineSplitter(LIMIT)
    for _ in range(1000):
        assert splitter.feed(b"x" * 1000) == []
    assert splitter.feed(b"\nnext\n") == [Oversized(1_000_000, b"x" * HEAD_BYTES), b"next"]


def test_an_empty_stream_has_no_frames() -> None:
    assert split([b"", b"\n\r\n\n", b""]) == []
