"""Measurements of stored threads: listing many, reading and resuming a long one."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.bench import Bench, per_program
from benchmarks.mock_model import mock_model
from benchmarks.programs import NEWER, OLDER, TREADLE, Program
from benchmarks.report import Row, Target, Unit
from benchmarks.rollouts import write_threads
from benchmarks.servers import ServerFailed
from benchmarks.timed_client import WORK, Timed, TimedClient, timed_client

PAGE: Final = 25
_INDEX_SECONDS: Final = 60.0


def lists(bench: Bench) -> list[Row]:
    """Measure all pages of `thread/list`, and check that each thread is listed once."""
    times, listed_once = bench.samples(), bench.samples()
    total = bench.sizes.threads_listed
    folder = bench.homes / "lists"
    # Each program gets the same threads, under the same ids.
    ids, *_ = [write_threads(folder / program.name, total, cwd=WORK) for program in bench.programs]
    for program in bench.turns(bench.sizes.lists):
        with timed_client(program, folder) as client:
            _wait_for_index(client, total)
            seconds, listed = _list_all(client)
        times[program.name].append(seconds * 1e3)
        listed_once[program.name].append(sum(listed[id_] == 1 for id_ in ids))
    return [
        Row(
            f"thread/list of all {total:,}, median",
            Unit.MILLISECONDS,
            per_program(median, times),
            Target(at_most={NEWER: 0.1, OLDER: 1.0}),
        ),
        Row(
            "  listed exactly once",
            Unit.COUNT,
            per_program(min, listed_once),
            Target(exactly=total),
        ),
    ]


def pages(bench: Bench) -> list[Row]:
    """Measure one page of `thread/list` out of few threads and out of very many."""
    sizes = bench.sizes
    took = {total: _time_page(bench, total) for total in (sizes.few_threads, sizes.many_threads)}
    rows = [
        Row(f"a page of {total:,} threads, best", Unit.MILLISECONDS, {TREADLE: seconds * 1e3})
        for total, seconds in took.items()
    ]
    ratio = took[sizes.many_threads] / took[sizes.few_threads]
    return [*rows, Row("  growth", Unit.TIMES, {TREADLE: ratio}, Target(up_to=2.0))]


def reading(bench: Bench) -> list[Row]:
    """Measure reading and resuming a long thread, each on a fresh server."""
    resumed, read, again = bench.samples(), bench.samples(), bench.samples()
    total = bench.sizes.turns_read
    ids: dict[str, str] = {}
    home = bench.homes / "reading"
    with mock_model() as url:
        for program in bench.programs:
            with timed_client(program, home, url) as client:
                ids[program.name] = client.start_thread()
                for _ in range(total):
                    client.run_turns([ids[program.name]], 1)
    for program in bench.turns(bench.sizes.reads):
        thread_id = ids[program.name]
        answers = _read(program, home, thread_id)
        read[program.name].append(answers[0].seconds * 1e3)
        again[program.name].append(min(answer.seconds for answer in answers[1:]) * 1e3)
        answer = _resume(program, home, thread_id)
        resumed[program.name].append(answer.seconds * 1e3)
        for checked in (answers[0], answer):
            _check_turns(program, checked, total)
    to_read = Target(at_most={NEWER: 0.2, OLDER: 1.0})
    to_resume = Target(at_most={NEWER: 0.4, OLDER: 1.0})
    return [
        Row(
            f"resume {total:,} turns, median",
            Unit.MILLISECONDS,
            per_program(median, resumed),
            to_resume,
        ),
        Row(f"read {total:,} turns, median", Unit.MILLISECONDS, per_program(median, read), to_read),
        Row("  read again, min", Unit.MILLISECONDS, per_program(min, again), to_read),
    ]


def _read(program: Program, home: Path, thread_id: str) -> list[Timed]:
    with timed_client(program, home) as client:
        params = {"threadId": thread_id, "includeTurns": True}
        return [client.ask("thread/read", params) for _ in range(4)]


def _resume(program: Program, home: Path, thread_id: str) -> Timed:
    with timed_client(program, home) as client:
        return client.ask("thread/resume", {"threadId": thread_id})


def _check_turns(program: Program, answer: Timed, total: int) -> None:
    turns = answer.result()["thread"]["turns"]
    if len(turns) != total:
        raise ServerFailed(f"{program.name} returned {len(turns)} of {total} turns")


def _list_all(client: TimedClient) -> tuple[float, Counter[str]]:
    listed: Counter[str] = Counter()
    seconds, cursor = 0.0, None
    while True:
        answer = client.ask("thread/list", {"limit": PAGE, "cursor": cursor})
        seconds += answer.seconds
        result = answer.result()
        listed.update(thread["id"] for thread in result["data"])
        cursor = result.get("nextCursor")
        if cursor is None:
            return seconds, listed


def _wait_for_index(client: TimedClient, total: int) -> None:
    """List until all threads are indexed: 0.163.0 fills its database after startup."""
    deadline = time.monotonic() + _INDEX_SECONDS
    before = -1
    while time.monotonic() < deadline:
        _, listed = _list_all(client)
        if len(listed) in (total, before):
            return
        before = len(listed)
        time.sleep(0.5)


def _time_page(bench: Bench, total: int) -> float:
    home = bench.homes / f"pages-{total}"
    write_threads(home / TREADLE, total, cwd=WORK)
    with timed_client(bench.treadle, home) as client:
        params = {"limit": PAGE}
        # The first request builds the index.
        client.ask("thread/list", params)
        return min(client.ask("thread/list", params).seconds for _ in range(bench.sizes.pages))
