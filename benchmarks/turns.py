"""Measurements of active threads: starting them, running turns, streaming deltas, endurance."""

from __future__ import annotations

from statistics import median
from typing import Final

from benchmarks.bench import Bench, per_program
from benchmarks.mock_model import answer_text, mock_model
from benchmarks.programs import NEWER, OLDER, TREADLE
from benchmarks.report import Row, Target, Unit
from benchmarks.servers import ServerFailed
from benchmarks.timed_client import TimedClient, answers_by_thread, timed_client

WARM_UP: Final = 3
TURNS_PER_THREAD: Final = 10
# Leaves room for bounded caches, such as SQLite's.
MAX_GROWTH: Final = 1.1


def threads(bench: Bench) -> list[Row]:
    """Measure `thread/start` on a server that has already started some threads."""
    times = bench.samples()
    with mock_model() as url:
        for program in bench.turns(bench.sizes.rounds):
            with timed_client(program, bench.homes / "threads", url) as client:
                for _ in range(WARM_UP):
                    _start_timed(client)
                times[program.name] += [
                    _start_timed(client) for _ in range(bench.sizes.threads_started)
                ]
    target = Target(at_most={NEWER: 0.5, OLDER: 1.0})
    return [
        Row("thread/start, median", Unit.MILLISECONDS, per_program(median, times), target),
        Row("thread/start, min", Unit.MILLISECONDS, per_program(min, times), target),
    ]


def turns(bench: Bench) -> list[Row]:
    """Measure a turn with a one-word answer: the overhead of the server."""
    times, costs = bench.samples(), bench.samples()
    count = bench.sizes.turns
    with mock_model() as url:
        for program in bench.turns(bench.sizes.rounds):
            with timed_client(program, bench.homes / "turns", url) as client:
                thread_id = client.start_thread()
                for _ in range(WARM_UP):
                    client.run_turns([thread_id], 1)
                began = client.server.cpu_seconds()
                took = [client.run_turns([thread_id], 1).seconds for _ in range(count)]
                costs[program.name].append((client.server.cpu_seconds() - began) / count * 1e3)
                times[program.name] += [seconds * 1e3 for seconds in took]
    target = Target(at_most={NEWER: 0.3, OLDER: 1.0})
    return [
        Row("plain turn, median", Unit.MILLISECONDS, per_program(median, times), target),
        Row("plain turn, min", Unit.MILLISECONDS, per_program(min, times)),
        Row("  server's processor per turn", Unit.MILLISECONDS, per_program(min, costs), target),
    ]


def deltas(bench: Bench) -> list[Row]:
    """Measure one turn with very many deltas; none may be lost or reordered."""
    rates, costs = bench.samples(), bench.samples()
    total = bench.sizes.deltas
    with mock_model() as url:
        for program in bench.turns(bench.sizes.rounds):
            with timed_client(program, bench.homes / "deltas", url) as client:
                thread_id = client.start_thread()
                client.run_turns([thread_id], 1)
                began = client.server.cpu_seconds()
                turn = client.run_turns([thread_id], total)
                costs[program.name].append((client.server.cpu_seconds() - began) / total * 1e6)
                rates[program.name].append(total / turn.seconds)
                if answers_by_thread(turn.line) != {thread_id: answer_text(total)}:
                    raise ServerFailed(f"{program.name} lost or reordered deltas")
    return [
        Row(
            f"{total:,} deltas, best",
            Unit.PER_SECOND,
            per_program(max, rates),
            Target(at_least={NEWER: 1.5, OLDER: 1.0}),
        ),
        Row(
            "  server's processor per delta",
            Unit.MICROSECONDS,
            per_program(min, costs),
            Target(at_most={NEWER: 0.35, OLDER: 1.0}),
        ),
    ]


def crowd(bench: Bench) -> list[Row]:
    """Measure many threads with one turn each at once, and the memory afterwards."""
    rates, rss = bench.samples(), bench.samples()
    total, pieces = bench.sizes.threads_at_once, bench.sizes.deltas_at_once
    with mock_model() as url:
        for program in bench.turns(bench.sizes.rounds):
            with timed_client(program, bench.homes / "crowd", url) as client:
                ids = [client.start_thread() for _ in range(total)]
                client.run_turns(ids[:1], 1)
                run = client.run_turns(ids, pieces)
                rates[program.name].append(total / run.seconds)
                if answers_by_thread(run.line) != dict.fromkeys(ids, answer_text(pieces)):
                    raise ServerFailed(f"{program.name} lost or reordered deltas")
                rss[program.name].append(client.server.settled_memory().rss / 2**20)
    return [
        Row(
            f"{total:,} turns of {pieces:,} deltas at once, best",
            Unit.PER_SECOND,
            per_program(max, rates),
            Target(at_least={NEWER: 5.0, OLDER: 1.0}),
        ),
        Row(
            "  memory afterwards, RSS",
            Unit.MEBIBYTES,
            per_program(median, rss),
            Target(at_most={NEWER: 0.3, OLDER: 1.0}),
        ),
    ]


def marathon(bench: Bench) -> list[Row]:
    """Measure the memory over very many turns on one server, ten per thread."""
    few, many = bench.sizes.few_turns, bench.sizes.many_turns
    with mock_model() as url, timed_client(bench.treadle, bench.homes / "marathon", url) as client:
        _run_threads(client, few)
        early = client.server.settled_memory().rss / 2**20
        _run_threads(client, many - few)
        late = client.server.settled_memory().rss / 2**20
    return [
        Row(f"memory after {few:,} turns, RSS", Unit.MEBIBYTES, {TREADLE: early}),
        Row(f"memory after {many:,} turns, RSS", Unit.MEBIBYTES, {TREADLE: late}),
        Row("  growth", Unit.TIMES, {TREADLE: late / early}, Target(up_to=MAX_GROWTH)),
    ]


def _start_timed(client: TimedClient) -> float:
    answer = client.timed_thread_start()
    answer.result()
    return answer.seconds * 1e3


def _run_threads(client: TimedClient, turns: int) -> None:
    for _ in range(turns // TURNS_PER_THREAD):
        thread_id = client.start_thread()
        for _ in range(TURNS_PER_THREAD):
            client.run_turns([thread_id], 1)
        client.ask("thread/unsubscribe", {"threadId": thread_id})
