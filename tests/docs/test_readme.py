"""What the README shows is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def environment(home: Path) -> dict[str, str]:
    """A machine on which nothing is configured and no key is set."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**kept, "TREADLE_HOME": str(home), "HOME": str(home)}


def test_the_python_example_runs_and_the_scripted_model_answers(tmp_path: Path) -> None:
    (example,) = blocks("python")
    here = example.replace(".venv/bin/treadle", str(Path(sys.executable).with_name("treadle")))
    command = [sys.executable, "-c", here]

    done = subprocess.run(
        command, env=environment(tmp_path), capture_output=True, text=True, timeout=50, check=True
    )

    assert "demonstration model" in done.stdout
    assert "'Say hello'" in done.stdout


def test_the_configuration_is_understood(tmp_path: Path) -> None:
    (example,) = blocks("toml")
    config = tomllib.loads(example)
    (tmp_path / "config.toml").write_text(example)
    command = [sys.executable, "-m", "treadle", "app-server", "--strict-config"]
    hello = '{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}\n'

    done = subprocess.run(
        command,
        env=environment(tmp_path),
        input=hello,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )

    assert (config["model"], config["model_provider"]) == ("llama3.3", "ollama")
    assert '"id":0' in done.stdout


def test_the_demo_shows_what_the_readme_says(tmp_path: Path) -> None:
    shown = next(block for block in blocks("console") if "make demo" in block)
    promised = re.findall(r"^\d\. .*|^   thread/list .*", shown, re.MULTILINE)

    done = subprocess.run(
        [sys.executable, "-m", "treadle", "demo"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )

    lines = [re.sub(r"kill -9 \d+", "kill -9", line) for line in done.stdout.splitlines()]
    for line in promised:
        assert re.sub(r"kill -9 \d+", "kill -9", line) in lines
