"""Every wait of a client for a turn ends, wherever a write, a sync or an import fails.

`tests.harness.faults` repeats one conversation for each failure point: a thread is started, a turn
runs a command that needs approval, and after the fault a second turn follows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.soak import EVERY

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("kind", "least"), [("writes", 15), ("syncs", 6), ("states", 10), ("imports", 8)]
)
def test_a_fault_at_any_point_ends_the_turn_and_spares_the_thread(
    tmp_path: Path, kind: str, least: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-m", "tests.harness.faults", str(tmp_path), kind, str(EVERY)],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TREADLE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    runs = [json.loads(line) for line in done.stdout.splitlines()]

    assert len({run["number"] for run in runs}) >= least // EVERY, (
        "the conversation passes these points"
    )
    assert [run for run in runs if run["faults"]] == []
    assert all(run["where"] for run in runs), "each run met its fault"
