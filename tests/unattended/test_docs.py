"""The examples on the page about unattended sessions run and print what it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from tests.harness.processes import environment
from treadle.unattended import EXIT_CODES, RunPlan, SessionOptions

PAGE = (Path(__file__).parents[2] / "docs" / "unattended.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def run(home: Path, program: str) -> str:
    """Run a block as it is printed."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return done.stdout


def test_the_example_runs_and_reports_what_happens(home: Path) -> None:
    lines = run(home, blocks("python")[0]).splitlines()
    kinds = [line.partition(" ")[0] for line in lines]
    assert kinds[:3] == ["session_started", "turn_completed", "session_ended"]
    assert re.fullmatch(r"idle \d+ tokens", lines[3])
    assert kinds[4:]


def test_the_other_example_is_valid(home: Path) -> None:
    assert run(home, blocks("python")[1]) == ""


def test_every_option_is_described() -> None:
    described = set(re.findall(r"`(\w+)`", PAGE))
    assert {field.name for field in fields(RunPlan)} <= described
    left_out = {"client_name", "uses_git", "resume_total"}
    assert {field.name for field in fields(SessionOptions)} - described <= left_out


def test_the_table_of_exit_codes_is_the_one_in_use() -> None:
    table = PAGE.partition("## Errors")[2]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", table, re.MULTILINE)
    assert {kind: int(code) for kind, code in rows} == {str(k): v for k, v in EXIT_CODES.items()}
