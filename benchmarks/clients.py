"""Measurements of the client library against the official one, on the same server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.bench import Bench
from benchmarks.mock_model import mock_model, prompt_for_pieces
from benchmarks.programs import TREADLE, Program
from benchmarks.report import Row, Target, Unit
from benchmarks.servers import ServerFailed
from benchmarks.timed_client import WORK, configure

SDK: Final = "openai_codex"
_SECONDS: Final = 120
_IMPORTS: Final = {TREADLE: "from treadle import AsyncClient, Client", SDK: "import openai_codex"}
_CLIENTS: Final = {
    TREADLE: """\
from treadle import Client
client = Client([server, "app-server"], cwd=work)
client.connect()
thread = client.start_thread()
run, leave = thread.run, client.close
""",
    SDK: """\
from openai_codex import Codex, CodexConfig
codex = Codex(CodexConfig(codex_bin=server))
codex.__enter__()
thread = codex.thread_start(cwd=work)
run, leave = thread.run, lambda: codex.__exit__(None, None, None)
""",
}
_TURNS: Final = """
import json, time
for _ in range(5):
    run(text)
wall, processor = time.perf_counter(), time.process_time()
for _ in range(turns):
    run(text)
wall, processor = time.perf_counter() - wall, time.process_time() - processor
print(json.dumps([wall / turns, processor / turns]))
leave()
"""
_TARGET: Final = Target(at_most={SDK: 0.5})


def importing(bench: Bench) -> list[Row]:
    """Measure the import of a client, beyond a bare interpreter."""
    times: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for _ in range(1 + bench.sizes.imports):
        bare = _time_python("pass")
        for name, code in _IMPORTS.items():
            times[name].append((_time_python(code) - bare) * 1e3)
    # The first round reads the modules from disk.
    values = {name: median(each[1:]) for name, each in times.items()}
    return [Row("import of the client, median", Unit.MILLISECONDS, values, _TARGET)]


def clients(bench: Bench) -> list[Row]:
    """Measure a plain turn through two clients on the same server: the overhead of each."""
    walls: dict[str, list[float]] = {name: [] for name in _CLIENTS}
    costs: dict[str, list[float]] = {name: [] for name in _CLIENTS}
    with mock_model() as url:
        for _ in range(2 * bench.sizes.rounds):
            for name, code in _CLIENTS.items():
                wall, cost = _run_turns(bench.treadle, bench.homes / "clients", code, url, bench)
                walls[name].append(wall * 1e3)
                costs[name].append(cost * 1e3)
    best = {name: min(each) for name, each in costs.items()}
    return [
        Row("  client's processor per turn", Unit.MILLISECONDS, best, _TARGET),
        Row(
            "plain turn through a client, min",
            Unit.MILLISECONDS,
            {n: min(w) for n, w in walls.items()},
        ),
    ][::-1]


def _time_python(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=_SECONDS)
    return time.perf_counter() - began


def _run_turns(
    program: Program, home: Path, code: str, url: str, bench: Bench
) -> tuple[float, float]:
    configure(home, url)
    variables = {"server": str(program.path), "work": WORK, "text": prompt_for_pieces(20)}
    assignments = "".join(f"{name} = {value!r}\n" for name, value in variables.items())
    script = f"{assignments}turns = {bench.sizes.client_turns}\n{code}{_TURNS}"
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environ = {**inherited, "HOME": str(home), "TREADLE_HOME": str(home), "CODEX_HOME": str(home)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        raise ServerFailed(f"the client script failed: {done.stderr[-2000:]}")
    wall, processor = json.loads(done.stdout.splitlines()[-1])
    return wall, processor
