"""Every benchmark runs and reports. Tests do not check how fast anything is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.bench import Bench, Sizes
from benchmarks.clients import SDK
from benchmarks.measures import MEASURES
from benchmarks.mock_model import answer_text, mock_model
from benchmarks.programs import NEWER, OLDER, TREADLE, find_newer, find_treadle
from benchmarks.report import Row, Target, Unit, table
from benchmarks.rollouts import write_threads
from benchmarks.servers import ServerFailed, homes
from benchmarks.timed_client import WORK, answers_by_thread, timed_client
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
    rounds=1,
    threads_started=2,
    turns=2,
    deltas=50,
    threads_at_once=3,
    deltas_at_once=5,
    threads_listed=30,
    lists=1,
    turns_read=3,
    reads=1,
    few_threads=10,
    many_threads=30,
    pages=2,
    few_turns=10,
    many_turns=20,
    imports=1,
    client_turns=5,
    commands=6,
    commands_at_once=3,
    lines_of_output=10,
    lines_patched=100,
    files=40,
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
    "threads": ["thread/start, median", "thread/start, min"],
    "turns": ["plain turn, median", "plain turn, min", "  server's processor per turn"],
    "deltas": ["50 deltas, best", "  server's processor per delta"],
    "crowd": ["3 turns of 5 deltas at once, best", "  memory afterwards, RSS"],
    "commands": [
        "turn with a sandboxed command, median",
        "turn with a sandboxed command, min",
    ],
    "approvals": ["turn with an approval, median", "turn with an approval, min"],
    "patches": ["turn with a patch to 100 lines, median", "turn with a patch to 100 lines, min"],
    "parallel": ["3 commands at once, min", "  of these with every byte"],
    "importing": ["import of the client, median"],
    "clients": ["plain turn through a client, min", "  client's processor per turn"],
    "lists": ["thread/list of all 30, median", "  listed exactly once"],
    "reading": ["resume 3 turns, median", "read 3 turns, median", "  read again, min"],
    "files": [
        "search of 40 files, median",
        "  files found",
        "first letter in a session, median",
        "each further letter, median",
    ],
    "pages": ["a page of 10 threads, best", "a page of 30 threads, best", "  growth"],
    "marathon": ["memory after 10 turns, RSS", "memory after 20 turns, RSS", "  growth"],
}
ALONE = {"pages", "marathon"}
"""Measures of Treadle by itself."""
OF_CLIENTS = {"importing", "clients"}


@pytest.fixture
def folder() -> Iterator[Path]:
    with homes() as path:
        yield path


@pytest.mark.parametrize("name", MEASURES)
def test_a_benchmark_reports_each_of_its_numbers(name: str, folder: Path) -> None:
    rows = MEASURES[name](Bench([find_treadle()], folder, TINY))

    assert [row.measure for row in rows] == NAMES[name]
    programs = [TREADLE, SDK] if name in OF_CLIENTS else [TREADLE]
    assert all(list(row.values) == programs for row in rows)


@pytest.mark.usefixtures("reference")
@pytest.mark.parametrize("name", [name for name in MEASURES if name not in ALONE | OF_CLIENTS])
def test_a_benchmark_reports_each_of_its_numbers_for_the_reference_too(
    name: str, folder: Path
) -> None:
    rows = MEASURES[name](Bench([find_treadle(), find_newer()], folder, TINY))

    assert [row.measure for row in rows] == NAMES[name]
    assert all(list(row.values) == [TREADLE, NEWER] for row in rows)
    assert NEWER in table(rows, [NEWER])


def test_requests_sent_at_once_are_all_answered(folder: Path) -> None:
    answers, refusals = MEASURES["pipelined"](Bench([find_treadle()], folder, TINY))

    assert (answers.values, refusals.values) == ({TREADLE: 20}, {TREADLE: 0})


def test_the_model_sends_every_delta_once_and_in_order(folder: Path) -> None:
    with mock_model() as url, timed_client(find_treadle(), folder, url) as client:
        ids = [client.start_thread(), client.start_thread()]
        messages = answers_by_thread(client.run_turns(ids, 12).line)

    assert messages == dict.fromkeys(ids, answer_text(12))


def test_a_refused_request_ends_a_benchmark_with_its_reason(folder: Path) -> None:
    with timed_client(find_treadle(), folder) as client:
        answer = client.ask("thread/read", {"threadId": "nowhere"})

    with pytest.raises(ServerFailed, match="refused: "):
        answer.result()


def test_threads_that_were_written_are_listed(folder: Path) -> None:
    ids = write_threads(folder / TREADLE, 7, cwd=WORK)
    with timed_client(find_treadle(), folder) as client:
        listed = client.ask("thread/list", {"limit": 25}).result()["data"]

    assert {thread["id"] for thread in listed} == ids


def test_a_table_shows_ratios_and_verdicts() -> None:
    values = {TREADLE: 2.0, NEWER: 4.0}
    rows = [
        Row("a", Unit.MILLISECONDS, values, Target(at_most={NEWER: 0.35, OLDER: 1.0})),
        Row("b", Unit.PER_SECOND, {TREADLE: 4000, NEWER: 2000}, Target(at_least={NEWER: 1.0})),
        Row("c", Unit.COUNT, values),
        Row("d", Unit.TIMES, {TREADLE: 1.5}, Target(up_to=2.0)),
        Row("e", Unit.TIMES, {TREADLE: 2.5}, Target(up_to=2.0)),
    ]

    assert [
        [cell.strip() for cell in line.split("|")] for line in table(rows, [NEWER]).split("\n")
    ][2:] == [
        ["", "a", "2.0 ms", "4.0 ms", "0.500x", "<= 0.35x 0.163.0, <= 1x 0.118.0", "over", ""],
        ["", "b", "4,000/s", "2,000/s", "2.00x", ">= 1x 0.163.0", "ok", ""],
        ["", "c", "2", "4", "0.500x", "", "", ""],
        ["", "d", "1.50x", "", "", "<= 2", "ok", ""],
        ["", "e", "2.50x", "", "", "<= 2", "over", ""],
    ]


def test_a_target_without_its_reference_is_met() -> None:
    assert Target(at_most={NEWER: 0.35}).is_met({TREADLE: 1.0})


def test_a_token_is_counted_wherever_the_chunks_end() -> None:
    text = b'{"echoed":"x"}{"echoed":"y"}'
    for cut in range(len(text)):
        tally = Tally(b'"echoed"')

        assert (tally.add(text[:cut]) + tally.add(text[cut:]), tally.total) == (2, 2)


def test_an_unknown_benchmark_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["speed"])

    assert exit_.value.code == 2
    assert (
        f"unknown measure 'speed': expected one of {', '.join(MEASURES)}" in capsys.readouterr().err
    )
