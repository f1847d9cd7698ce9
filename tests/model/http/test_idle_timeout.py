"""Keep-alives extend the wait for an answer up to a limit; single bytes do not extend it."""

from __future__ import annotations

import pytest

from treadle.model.http.idle_timeout import MIN_BYTES, StreamTimeout

IDLE, LIMIT = 10.0, 60.0


def seconds_until_given_up(chunk: bytes, *, is_progress: bool = False, most: int = 500) -> int:
    """Feed a stream one chunk per second of a virtual clock; return when it times out."""
    silence = StreamTimeout(IDLE, LIMIT)
    for now in range(most):
        silence.begin_wait(now)
        if silence.ends_at(now + 1) <= now + 1:
            return now + 1
        silence.end_wait(now + 1, chunk)
        if is_progress:
            silence.note_progress()
    return most


@pytest.mark.parametrize("chunk", [b"x", b":", b" ", b"xx"])
def test_bytes_without_the_end_of_a_line_do_not_extend_the_wait(chunk: bytes) -> None:
    assert seconds_until_given_up(chunk) == IDLE


@pytest.mark.parametrize("chunk", [b": PROCESSING\n\n", b"\n", b"\r", b"data: {}\n\n"])
def test_keep_alives_extend_the_wait_up_to_a_limit(chunk: bytes) -> None:
    assert seconds_until_given_up(chunk) == LIMIT


def test_parts_of_the_answer_extend_the_wait_without_limit() -> None:
    assert seconds_until_given_up(b"data: {}\n\n", is_progress=True) == 500


def test_long_line_counts_as_activity_while_it_arrives() -> None:
    assert seconds_until_given_up(b"x" * MIN_BYTES) == LIMIT
    assert seconds_until_given_up(b"x" * (MIN_BYTES // 4)) == LIMIT


def test_time_in_which_the_stream_is_not_read_does_not_count() -> None:
    silence = StreamTimeout(IDLE, LIMIT)
    silence.begin_wait(0)
    silence.end_wait(9, b"x")
    assert silence.ends_at(1000) == 1001
    silence.begin_wait(1000)
    assert silence.ends_at(1000.5) == 1001


def test_idle_timeout_above_the_other_limit_applies() -> None:
    silence = StreamTimeout(idle_s=100, keep_alive_s=1)
    silence.begin_wait(0)
    assert silence.ends_at(0) == 100


def test_error_names_the_limit() -> None:
    silence = StreamTimeout(IDLE, LIMIT)
    silence.begin_wait(0)
    assert "no data for 10 s" in silence.error(10).message
    silence.end_wait(60, b":\n")
    silence.begin_wait(60)
    error = silence.error(60)
    assert "only keep-alives for 60 s" in error.message
    assert not error.is_retryable
