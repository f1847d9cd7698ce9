"""One function per measure; within each, the programs alternate, so that noise affects them all."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, TypeAlias

from benchmarks import clients, file_search, hands, history, turns
from benchmarks.bench import Bench, Measure, Reduce, Sizes, Values, per_program
from benchmarks.programs import NEWER, OLDER, Program
from benchmarks.report import Row, Target, Unit
from benchmarks.servers import Server
from benchmarks.wires import (
    PipeWire,
    Wire,
    ask,
    initialize,
    limited,
    open_websocket,
    pour,
    request,
    run_loop,
)

ANSWER_SECONDS: Final = 30.0
LOOP_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 3.0
IN_FLIGHT: Final = 64
OVERLOADED: Final = -32001
TRANSPORTS: Final[Mapping[str, str | None]] = {"stdio": None, "WebSocket": "ws://127.0.0.1:0"}
"""The `--listen` argument of each transport; none for the default."""


def start(bench: Bench) -> list[Row]:
    """Measure the time from spawn to the answers to `initialize` and to the next request."""
    firsts, seconds = bench.samples(), bench.samples()
    for program in bench.turns(1):
        # The first start creates the home and reads the program from disk: it is not measured.
        _time_start(program, bench.homes)
    for program in bench.turns(bench.sizes.starts):
        first, second = _time_start(program, bench.homes)
        firsts[program.name].append(first * 1000)
        seconds[program.name].append(second * 1000)
    target = Target(at_most={NEWER: 0.35, OLDER: 1.0})
    return [
        Row("start, median", Unit.MILLISECONDS, per_program(median, firsts), target),
        Row("start, min", Unit.MILLISECONDS, per_program(min, firsts), target),
        Row("ready, median", Unit.MILLISECONDS, per_program(median, seconds)),
        Row("ready, min", Unit.MILLISECONDS, per_program(min, seconds)),
    ]


def memory(bench: Bench) -> list[Row]:
    """Measure the resident memory of an idle server that has answered two requests."""
    rss, pss = bench.samples(), bench.samples()
    for program in bench.turns(bench.sizes.memories):
        with Server(program, bench.homes) as server, limited(server, ANSWER_SECONDS):
            wire = PipeWire(server)
            initialize(wire)
            ask(wire)
            resident = server.settled_memory()
            rss[program.name].append(resident.rss / 2**20)
            pss[program.name].append(resident.pss / 2**20)
    return [
        Row("memory, RSS", Unit.MEBIBYTES, per_program(median, rss), Target(at_most={NEWER: 0.35})),
        Row("memory, PSS", Unit.MEBIBYTES, per_program(median, pss)),
    ]


def pipelined(bench: Bench) -> list[Row]:
    """Count the answers, and the refusals, to requests that are written all at once."""
    total = bench.sizes.pipelined
    results: dict[str, float] = {}
    refusals: dict[str, float] = {}
    for program in bench.turns(1):
        with Server(program, bench.homes) as server, limited(server, 2 * ANSWER_SECONDS):
            kinds = _pour_requests(PipeWire(server), total)
        results[program.name] = kinds["result"]
        refusals[program.name] = kinds["overloaded"]
    answers = {name: results[name] + refusals[name] for name in results}
    return [
        Row(f"answers to {total:,} at once", Unit.COUNT, answers, Target(exactly=total)),
        Row("of these refused (-32001)", Unit.COUNT, refusals),
    ]


def loop(bench: Bench) -> list[Row]:
    """Measure requests per second with 64 in flight, and the server's processor time for each."""
    rows: list[Row] = []
    target = Target(at_least={NEWER: 1.0, OLDER: 1.0})
    for transport, listen in TRANSPORTS.items():
        runs = _run_loops(bench, listen, in_flight=IN_FLIGHT, requests=bench.sizes.loop_requests)
        rates = _best(runs, max, lambda run: run.rate)
        costs = _best(runs, min, lambda run: run.cost)
        shares = _best(runs, median, lambda run: run.client_share)
        rows += [
            Row(f"loop on {transport}, best", Unit.PER_SECOND, rates, target),
            Row("  server's processor per request", Unit.MICROSECONDS, costs),
            Row("  client's processor in use", Unit.PERCENT, shares),
        ]
    return rows


def roundtrip(bench: Bench) -> list[Row]:
    """Measure the round trip of a single request: no batch hides a wake-up."""
    rows: list[Row] = []
    for transport, listen in TRANSPORTS.items():
        runs = _run_loops(bench, listen, in_flight=1, requests=bench.sizes.roundtrips)
        times = _best(runs, min, lambda run: 1e6 / run.rate)
        costs = _best(runs, min, lambda run: run.cost)
        rows += [
            Row(f"round trip on {transport}, best", Unit.MICROSECONDS, times),
            Row("  server's processor per request", Unit.MICROSECONDS, costs),
        ]
    return rows


MEASURES: Final[Mapping[str, Measure]] = {
    "start": start,
    "memory": memory,
    "pipelined": pipelined,
    "loop": loop,
    "roundtrip": roundtrip,
    "threads": turns.threads,
    "turns": turns.turns,
    "deltas": turns.deltas,
    "crowd": turns.crowd,
    "marathon": turns.marathon,
    "commands": hands.commands,
    "patches": hands.patches,
    "approvals": hands.approvals,
    "parallel": hands.parallel,
    "importing": clients.importing,
    "clients": clients.clients,
    "lists": history.lists,
    "pages": history.pages,
    "reading": history.reading,
    "files": file_search.file_search,
}


class _Loop(NamedTuple):
    rate: float
    cost: float
    client_share: float


_Runs: TypeAlias = Mapping[str, list[_Loop]]


def _time_start(program: Program, homes: Path) -> tuple[float, float]:
    began = time.perf_counter()
    with Server(program, homes) as server, limited(server, ANSWER_SECONDS):
        wire = PipeWire(server)
        initialize(wire)
        first = time.perf_counter() - began
        ask(wire)
        return first, time.perf_counter() - began


def _pour_requests(wire: PipeWire, total: int) -> Counter[str]:
    initialize(wire)
    ask(wire)
    data = b"".join(wire.frame(request(number)) for number in range(total))
    received = pour(wire, data, answers=total, seconds=ANSWER_SECONDS, quiet=QUIET_SECONDS)
    kinds: Counter[str] = Counter()
    for line in received.splitlines():
        message = json.loads(line)
        if "result" in message:
            kinds["result"] += 1
        elif message.get("error", {}).get("code") == OVERLOADED:
            kinds["overloaded"] += 1
    return kinds


def _best(runs: _Runs, reduce: Reduce, number: Callable[[_Loop], float]) -> Values:
    return {name: reduce(map(number, each)) for name, each in runs.items()}


def _run_loops(bench: Bench, listen: str | None, *, in_flight: int, requests: int) -> _Runs:
    runs: dict[str, list[_Loop]] = {program.name: [] for program in bench.programs}
    for program in bench.turns(bench.sizes.loops):
        with ExitStack() as stack:
            server = stack.enter_context(Server(program, bench.homes, listen=listen))
            stack.enter_context(limited(server, ANSWER_SECONDS + 3 * LOOP_SECONDS))
            wire: Wire = stack.enter_context(open_websocket(server)) if listen else PipeWire(server)
            initialize(wire)
            run_loop(wire, bench.sizes.warm_up, in_flight=in_flight, seconds=LOOP_SECONDS)
            run = _run_loop(server, wire, bench.sizes, in_flight=in_flight, requests=requests)
            runs[program.name].append(run)
    return runs


def _run_loop(server: Server, wire: Wire, sizes: Sizes, *, in_flight: int, requests: int) -> _Loop:
    answers, seconds, client_seconds = 0, 0.0, 0.0
    began = server.cpu_seconds()
    # The kernel counts processor time in hundredths of a second: a fast server needs more rounds.
    while not answers or seconds < sizes.loop_seconds:
        run = run_loop(wire, requests, in_flight=in_flight, seconds=LOOP_SECONDS)
        answers += run.answers
        seconds += run.seconds
        client_seconds += run.client_seconds
    cost = (server.cpu_seconds() - began) / answers * 1e6
    return _Loop(answers / seconds, cost, client_seconds / seconds * 100)
