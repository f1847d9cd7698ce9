"""Every measure runs and reports. How fast anything is, is not a test's business."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.measures import MEASURES, Bench, Sizes
from benchmarks.programs import NEWER, OLDER, TREADLE, find_newer, find_treadle
from benchmarks.report import Row, Target, Unit, table
from benchmarks.servers import homes
from benchmarks.wires import Tally

TINY = Sizes(
    starts=1,
    memories=1,
    pipelined=20,
    loops=1,
    loop_requests=200,
    loop_seconds=0.0,
    roundtrips=20,
    warm_up=64,
)
NAMES = {
    "start": ["start, median", "start, min", "ready, median", "ready, min"],
    "memory": ["memory, RSS", "memory, PSS"],
    "pipelined": ["answers to 20 at once", "of these refused (-32001)"],
    "loop": [
        "loop on stdio, best",
        "  server's processor per request",
        "  client's processor in use",
        "loop on WebSocket, best",
        "  server's processor per request",
        "  client's processor in use",
    ],
    "roundtrip": [
        "round trip on stdio, best",
        "  server's processor per request",
        "round trip on WebSocket, best",
        "  server's processor per request",
    ],
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with homes() as path:
        yield path


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_reports_each_of_its_numbers_for_each_program(name: str, folder: Path) -> None:
    rows = MEASURES[name](Bench([find_treadle(), find_newer()], folder, TINY))

    assert [row.measure for row in rows] == NAMES[name]
    assert all(list(row.values) == [TREADLE, NEWER] for row in rows)
    assert NEWER in table(rows, [NEWER])


def test_requests_sent_at_once_are_all_answered(folder: Path) -> None:
    answers, refusals = MEASURES["pipelined"](Bench([find_treadle()], folder, TINY))

    assert (answers.values, refusals.values) == ({TREADLE: 20}, {TREADLE: 0})


def test_a_table_shows_ratios_and_verdicts() -> None:
    values = {TREADLE: 2.0, NEWER: 4.0}
    rows = [
        Row("a", Unit.MILLISECONDS, values, Target(at_most={NEWER: 0.35, OLDER: 1.0})),
        Row("b", Unit.PER_SECOND, {TREADLE: 4000, NEWER: 2000}, Target(at_least={NEWER: 1.0})),
        Row("c", Unit.COUNT, values),
    ]

    assert [
        [cell.strip() for cell in line.split("|")] for line in table(rows, [NEWER]).split("\n")
    ][2:] == [
        ["", "a", "2.0 ms", "4.0 ms", "0.500x", "<= 0.35x 0.163.0, <= 1x 0.118.0", "over", ""],
        ["", "b", "4,000/s", "2,000/s", "2.00x", ">= 1x 0.163.0", "ok", ""],
        ["", "c", "2", "4", "0.500x", "", "", ""],
    ]


def test_a_target_without_its_reference_is_met() -> None:
    assert Target(at_most={NEWER: 0.35}).is_met({TREADLE: 1.0})


def test_a_token_is_counted_wherever_the_chunks_end() -> None:
    text = b'{"echoed":"x"}{"echoed":"y"}'
    for cut in range(len(text)):
        tally = Tally(b'"echoed"')

        assert (tally.add(text[:cut]) + tally.add(text[cut:]), tally.total) == (2, 2)


def test_an_unknown_measure_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["speed"])

    assert exit_.value.code == 2
    assert (
        "no measure 'speed'; there are start, memory, pipelined, loop, roundtrip"
        in capsys.readouterr().err
    )
