"""Measurements of an agent's actions: sandboxed commands, patches, approvals, parallel commands."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.bench import Bench, per_program
from benchmarks.mock_model import mock_model
from benchmarks.programs import NEWER, OLDER, Program
from benchmarks.report import Row, Target, Unit
from benchmarks.servers import ServerFailed
from benchmarks.timed_client import TimedClient, timed_client

WARM_UP: Final = 2
_WAIT_MS: Final = 30_000
_HALF: Final = Target(at_most={NEWER: 0.5, OLDER: 1.0})


def commands(bench: Bench) -> list[Row]:
    """Measure a turn in which the model runs `true` in the sandbox."""
    calls = [{"cmd": "true", "login": False}]
    times = _timed(bench, "commands", calls, sandbox="workspace-write", approvalPolicy="never")
    return [
        Row(
            "turn with a sandboxed command, median",
            Unit.MILLISECONDS,
            per_program(median, times),
            _HALF,
        ),
        Row(
            "turn with a sandboxed command, min", Unit.MILLISECONDS, per_program(min, times), _HALF
        ),
    ]


def approvals(bench: Bench) -> list[Row]:
    """Measure a turn with an approval that the client accepts at once."""
    calls = [
        {
            "cmd": "true",
            "login": False,
            "sandbox_permissions": "require_escalated",
            "justification": "to measure it",
        }
    ]
    times = _timed(bench, "approvals", calls, sandbox="read-only", approvalPolicy="on-request")
    return [
        Row("turn with an approval, median", Unit.MILLISECONDS, per_program(median, times), _HALF),
        Row("turn with an approval, min", Unit.MILLISECONDS, per_program(min, times), _HALF),
    ]


def patches(bench: Bench) -> list[Row]:
    """Measure a turn in which the model changes one line of a long file, a new one each time."""
    times = bench.samples()
    total = bench.sizes.lines_patched
    with mock_model() as url:
        for program in bench.turns(bench.sizes.rounds):
            with _at_work(program, bench, "patches", url) as (client, thread_id, folder):
                (folder / "long.txt").write_text(_lines(range(total)))
                for number in range(bench.sizes.commands // 2):
                    line = total // 2 + 10 * number
                    run = client.run_commands(thread_id, [_patch(line)])
                    _check(program, run.line)
                    if number >= WARM_UP:
                        times[program.name].append(run.seconds * 1e3)
                text = (folder / "long.txt").read_text()
                if text.count("changed") != bench.sizes.commands // 2:
                    raise ServerFailed(f"{program.name} did not patch the file")
    target = Target(at_most={NEWER: 0.8, OLDER: 1.0})
    name = f"turn with a patch to {total:,} lines"
    return [
        Row(f"{name}, median", Unit.MILLISECONDS, per_program(median, times), target),
        Row(f"{name}, min", Unit.MILLISECONDS, per_program(min, times), target),
    ]


def parallel(bench: Bench) -> list[Row]:
    """Measure many commands in one model response; every byte of their output must arrive."""
    times = bench.samples()
    count, lines = bench.sizes.commands_at_once, bench.sizes.lines_of_output
    calls = [
        {"cmd": f"seq -f {number}-%.0f {lines}", "login": False, "yield_time_ms": _WAIT_MS}
        for number in range(count)
    ]
    expected = {_numbered(number, lines) for number in range(count)}
    complete: dict[str, float] = {}
    with mock_model() as url:
        for program in bench.turns(bench.sizes.rounds):
            with _at_work(program, bench, "parallel", url) as (client, thread_id, _folder):
                run = client.run_commands(thread_id, calls)
                times[program.name].append(run.seconds * 1e3)
                outputs = _outputs(run.line)
                arrived = len(expected & outputs)
                complete[program.name] = min(arrived, complete.get(program.name, arrived))
    return [
        Row(f"{count} commands at once, min", Unit.MILLISECONDS, per_program(min, times)),
        Row("  of these with every byte", Unit.COUNT, complete, Target(exactly=count)),
    ]


def _timed(
    bench: Bench, name: str, calls: Sequence[Mapping[str, object]], **params: object
) -> Mapping[str, list[float]]:
    times = bench.samples()
    with mock_model() as url:
        for program in bench.turns(bench.sizes.rounds):
            with _at_work(program, bench, name, url, **params) as (client, thread_id, _folder):
                for number in range(WARM_UP + bench.sizes.commands):
                    run = client.run_commands(thread_id, calls)
                    _check(program, run.line)
                    if number >= WARM_UP:
                        times[program.name].append(run.seconds * 1e3)
    return times


@contextmanager
def _at_work(
    program: Program, bench: Bench, name: str, url: str, **params: object
) -> Iterator[tuple[TimedClient, str, Path]]:
    """Start a thread in a separate folder, writable unless `params` say otherwise."""
    folder = Path(tempfile.mkdtemp(prefix="bench-work-"))
    policies = {"sandbox": "workspace-write", "approvalPolicy": "never", **params}
    try:
        with timed_client(program, bench.homes / name, url) as client:
            yield client, client.start_thread(cwd=str(folder), **policies), folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _patch(line: int) -> Mapping[str, object]:
    edit = f"*** Update File: long.txt\n@@\n {line - 1}\n-{line}\n+{line} changed\n {line + 1}\n"
    patch = f"*** Begin Patch\n{edit}*** End Patch"
    return {"cmd": f"apply_patch <<'EOF'\n{patch}\nEOF", "login": False}


def _lines(numbers: range) -> str:
    return "".join(f"{number}\n" for number in numbers)


def _numbered(command: int, lines: int) -> str:
    return "".join(f"{command}-{line}\n" for line in range(1, lines + 1))


def _check(program: Program, received: bytes) -> None:
    """Check that the command ran."""
    if b'"status":"failed"' in received or b'"status":"declined"' in received:
        raise ServerFailed(f"{program.name} did not run the command: {received[-2000:]!r}")


def _outputs(received: bytes) -> set[str]:
    """Return the output of each completed command of a turn."""
    outputs: set[str] = set()
    for line in received.splitlines():
        if b'"method":"item/completed"' in line and b'"commandExecution"' in line:
            outputs.add(json.loads(line)["params"]["item"]["aggregatedOutput"] or "")
    return outputs
