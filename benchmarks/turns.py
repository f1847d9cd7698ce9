"""Measures of active threads: starting them, running turns, streaming deltas, endurance."""

from __future__ import annotations

from statistics import median
from typing import Final

from benchmarks.bench import Bench, each
from benchmarks.mock_model import playing, spoken
from benchmarks.programs import NEWER, OLDER, TREADLE
from benchmarks.report import Row, Target, Unit
from benchmarks.servers import ServerFailed
from benchmarks.timed_client import Talk, talking, texts

WARM_UP: Final = 3
TURNS_PER_THREAD: Final = 10
# Leaves room for bounded caches, such as SQLite's.
MAX_GROWTH: Final = 1.1


def threads(bench: Bench) -> list[Row]:
    """Measure `thread/start` on a server that has already started some threads."""
    times = bench.samples()
    with playing() as url:
        for program in bench.turns(bench.sizes.rounds):
            with talking(program, bench.homes / "threads", url) as talk:
                for _ in range(WARM_UP):
                    _start_timed(talk)
                times[program.name] += [
                    _start_timed(talk) for _ in range(bench.sizes.threads_started)
                ]
    target = Target(at_most={NEWER: 0.5, OLDER: 1.0})
    return [
        Row("thread/start, median", Unit.MILLISECONDS, each(median, times), target),
        Row("thread/start, min", Unit.MILLISECONDS, each(min, times), target),
    ]


def turns(bench: Bench) -> list[Row]:
    """Measure a turn with a one-word answer: the overhead of the server."""
    times, costs = bench.samples(), bench.samples()
    count = bench.sizes.turns
    with playing() as url:
        for program in bench.turns(bench.sizes.rounds):
            with talking(program, bench.homes / "turns", url) as talk:
                thread_id = talk.start_thread()
                for _ in range(WARM_UP):
                    talk.run_turns([thread_id], 1)
                began = talk.server.cpu_seconds()
                took = [talk.run_turns([thread_id], 1).seconds for _ in range(count)]
                costs[program.name].append((talk.server.cpu_seconds() - began) / count * 1e3)
                times[program.name] += [seconds * 1e3 for seconds in took]
    target = Target(at_most={NEWER: 0.3, OLDER: 1.0})
    return [
        Row("plain turn, median", Unit.MILLISECONDS, each(median, times), target),
        Row("plain turn, min", Unit.MILLISECONDS, each(min, times)),
        Row("  server's processor per turn", Unit.MILLISECONDS, each(min, costs), target),
    ]


def deltas(bench: Bench) -> list[Row]:
    """Measure one turn with very many deltas; none may be lost or reordered."""
    rates, costs = bench.samples(), bench.samples()
    total = bench.sizes.deltas
    with playing() as url:
        for program in bench.turns(bench.sizes.rounds):
            with talking(program, bench.homes / "deltas", url) as talk:
                thread_id = talk.start_thread()
                talk.run_turns([thread_id], 1)
                began = talk.server.cpu_seconds()
                turn = talk.run_turns([thread_id], total)
                costs[program.name].append((talk.server.cpu_seconds() - began) / total * 1e6)
                rates[program.name].append(total / turn.seconds)
                if texts(turn.line) != {thread_id: spoken(total)}:
                    raise ServerFailed(f"{program.name} lost or reordered deltas")
    return [
        Row(
            f"{total:,} deltas, best",
            Unit.PER_SECOND,
            each(max, rates),
            Target(at_least={NEWER: 1.5, OLDER: 1.0}),
        ),
        Row(
            "  server's processor per delta",
            Unit.MICROSECONDS,
            each(min, costs),
            Target(at_most={NEWER: 0.35, OLDER: 1.0}),
        ),
    ]


def crowd(bench: Bench) -> list[Row]:
    """Measure many threads with one turn each at once, and the memory afterwards."""
    rates, rss = bench.samples(), bench.samples()
    total, pieces = bench.sizes.threads_at_once, bench.sizes.deltas_at_once
    with playing() as url:
        for program in bench.turns(bench.sizes.rounds):
            with talking(program, bench.homes / "crowd", url) as talk:
                ids = [talk.start_thread() for _ in range(total)]
                talk.run_turns(ids[:1], 1)
                run = talk.run_turns(ids, pieces)
                rates[program.name].append(total / run.seconds)
                if texts(run.line) != dict.fromkeys(ids, spoken(pieces)):
                    raise ServerFailed(f"{program.name} lost or reordered deltas")
                rss[program.name].append(talk.server.settled_memory().rss / 2**20)
    return [
        Row(
            f"{total:,} turns of {pieces:,} deltas at once, best",
            Unit.PER_SECOND,
            each(max, rates),
            Target(at_least={NEWER: 5.0, OLDER: 1.0}),
        ),
        Row(
            "  memory afterwards, RSS",
            Unit.MEBIBYTES,
            each(median, rss),
            Target(at_most={NEWER: 0.3, OLDER: 1.0}),
        ),
    ]


def marathon(bench: Bench) -> list[Row]:
    """Measure the memory over very many turns on one server, ten per thread."""
    few, many = bench.sizes.few_turns, bench.sizes.many_turns
    with playing() as url, talking(bench.treadle, bench.homes / "marathon", url) as talk:
        _run_threads(talk, few)
        early = talk.server.settled_memory().rss / 2**20
        _run_threads(talk, many - few)
        late = talk.server.settled_memory().rss / 2**20
    return [
        Row(f"memory after {few:,} turns, RSS", Unit.MEBIBYTES, {TREADLE: early}),
        Row(f"memory after {many:,} turns, RSS", Unit.MEBIBYTES, {TREADLE: late}),
        Row("  growth", Unit.TIMES, {TREADLE: late / early}, Target(up_to=MAX_GROWTH)),
    ]


def _start_timed(talk: Talk) -> float:
    answer = talk.ask_for_thread()
    answer.result()
    return answer.seconds * 1e3


def _run_threads(talk: Talk, turns: int) -> None:
    for _ in range(turns // TURNS_PER_THREAD):
        thread_id = talk.start_thread()
        for _ in range(TURNS_PER_THREAD):
            talk.run_turns([thread_id], 1)
        talk.ask("thread/unsubscribe", {"threadId": thread_id})
