"""How much of an output is published, and what notes say of the rest."""

from __future__ import annotations

from treadle.engine.terminals.output_deltas import (
    BURST_BYTES,
    BYTES_PER_SECOND,
    TOTAL_BYTES,
    OutputBudget,
    OutputDeltas,
)

KIB = 1024


def test_burst_is_granted_at_once_and_then_a_steady_rate() -> None:
    budget = OutputBudget()

    assert budget.take(BURST_BYTES, 0.0) == BURST_BYTES
    assert budget.take(1, 0.0) == 0
    assert budget.take(2 * BYTES_PER_SECOND, 1.0) == BYTES_PER_SECOND


def test_total_is_the_end() -> None:
    budget = OutputBudget()
    granted = sum(budget.take(BURST_BYTES, float(second)) for second in range(1000))

    assert granted == TOTAL_BYTES


def test_quiet_command_earns_no_more_than_a_burst() -> None:
    budget = OutputBudget()
    budget.take(BURST_BYTES, 0.0)

    assert budget.take(2 * BURST_BYTES, 1e6) == BURST_BYTES


def test_clock_that_stands_still_grants_nothing_more() -> None:
    budget = OutputBudget()
    budget.take(BURST_BYTES, 5.0)

    assert budget.take(BURST_BYTES, 5.0) == 0


def test_note_stands_where_output_is_missing() -> None:
    deltas = OutputDeltas(lambda: "/home/outputs/x.log")
    first = deltas.add("stdout", b"a" * (BURST_BYTES + 1000), 0.0)
    assert deltas.add("stdout", b"b" * 500, 0.0) == ""
    later = deltas.add("stdout", b"c" * 64 * KIB, 60.0)

    assert first == "a" * BURST_BYTES
    assert later.startswith("\n[... 1,500 bytes omitted; full output in /home/outputs/x.log]\nccc")
    assert deltas.finish() == ""


def test_last_note_comes_at_the_end() -> None:
    deltas = OutputDeltas(lambda: None)
    deltas.add("stdout", b"a" * (BURST_BYTES + 7), 0.0)

    assert deltas.finish() == "\n[... 7 bytes omitted]\n"


def test_character_that_a_gap_cuts_is_left_out() -> None:
    deltas = OutputDeltas(lambda: None)
    first = deltas.add("stdout", b"a" * (BURST_BYTES - 1) + "é".encode() * 10, 0.0)
    later = deltas.add("stdout", "é".encode()[1:] + "é".encode() * 50_000, 60.0)

    assert first == "a" * (BURST_BYTES - 1)
    assert later.endswith("omitted]\n" + "é" * 50_000)
    assert "\ufffd" not in first + later


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    deltas = OutputDeltas(lambda: None)

    assert deltas.add("stderr", b"a\xc3", 0.0) == "a"
    assert deltas.finish() == "\ufffd"
