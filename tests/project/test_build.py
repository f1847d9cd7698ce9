"""The wheel that a release publishes installs and runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import treadle

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not (ROOT / ".venv").is_dir(), reason="scripts/build uses the tools of .venv")
@pytest.mark.timeout(180)  # pip is slow on a busy machine
def test_the_wheel_installs_and_treadle_runs_from_it(tmp_path: Path) -> None:
    """Ours: the script that `make build` runs, without the network."""
    done = subprocess.run(
        [ROOT / "scripts/build", tmp_path / "dist"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"the wheel runs: treadle {treadle.__version__}\n",
        "",
    )
    assert sorted(path.suffix for path in (tmp_path / "dist").iterdir()) == [".gz", ".whl"]
