"""`treadle doctor`: what works here, and what does not and why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import treadle
from tests.harness.processes import TREADLE, environment


def run(home: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TREADLE, *arguments],
        env=environment(home, **extra),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_report_names_what_is_used(home: Path) -> None:
    done = run(home, "doctor", "--json")
    report = json.loads(done.stdout)
    assert done.stderr == ""
    assert done.returncode == (0 if report["sandbox"] != "none" else 1)
    assert (report["version"], report["home"]) == (treadle.__version__, str(home))
    assert (report["model"], report["modelProvider"]) == ("scripted", "scripted")
    assert report["python"].startswith(".".join(map(str, sys.version_info[:3])))
    works = {backend["name"] for backend in report["backends"] if backend["works"]}
    assert report["sandbox"] in works | {"none"}


def test_each_unusable_backend_is_listed_with_the_reason_and_a_remedy(home: Path) -> None:
    report = json.loads(run(home, "doctor", "--json", PATH=str(home)).stdout)
    assert report["backends"][0] == {
        "name": "bubblewrap",
        "works": False,
        "refused": [],
        "gaps": [],
        "reason": "bwrap is not installed",
        "fix": "install bubblewrap, for example: sudo apt-get install bubblewrap",
    }
    assert report["bubblewrapVersion"] is None


@pytest.mark.parametrize(
    ("protects", "gap"),
    [
        ("false", ".git, .codex and .agents in writable folders are not protected"),
        (
            "true",
            "nothing new can be created directly in a folder that contains .git, .codex or .agents",
        ),
    ],
)
def test_what_landlock_does_not_protect_is_named(home: Path, protects: str, gap: str) -> None:
    flags = ["-c", f"sandbox.landlock_protects={protects}", "doctor", "--json"]
    landlock = json.loads(run(home, *flags).stdout)["backends"][1]
    if not landlock["works"]:
        pytest.skip("landlock does not work here")
    assert landlock["gaps"][0].startswith(gap)


def test_the_text_report_says_the_same(home: Path) -> None:
    text = run(home, "doctor", PATH=str(home)).stdout
    assert "model       scripted (provider scripted)" in text
    assert "bubblewrap  not installed" in text
    assert "cause: bwrap is not installed" in text
    assert "fix:   install bubblewrap" in text


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_an_unusable_configuration_is_exit_code_1(home: Path, flags: list[str]) -> None:
    (home / "config.toml").write_text("model_provider = 'missing'\n")
    done = run(home, "doctor", *flags)
    assert done.returncode == 1
    assert "Model provider `missing` not found" in done.stdout


def test_values_of_the_command_line_apply(home: Path) -> None:
    report = json.loads(run(home, "-c", "model=gpt-5", "doctor", "--json").stdout)
    assert (report["model"], report["modelProvider"]) == ("gpt-5", "openai")


def test_values_from_files_cannot_control_the_terminal(home: Path) -> None:
    (home / "config.toml").write_text('model = "odd\\u001b[2J\\u202e"\n')
    done = run(home, "doctor")
    assert "model       odd\\x1b[2J\\u202e (provider" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
