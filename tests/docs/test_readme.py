"""The examples of the README run and print what it shows."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.harness.model_server import model_server, says
from tests.harness.threads import configure

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def environment(home: Path) -> dict[str, str]:
    """Return an environment without configuration and keys."""
    variables = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**variables, "TREADLE_HOME": str(home), "CODEX_HOME": str(home), "HOME": str(home)}


@pytest.mark.parametrize("name", ["from treadle", "from openai_codex"])
def test_each_python_example_runs_and_the_scripted_model_answers(name: str, tmp_path: Path) -> None:
    done = run_example(name, str(Path(sys.executable).with_name("treadle")), tmp_path)

    assert "`exec_command` answered:" in done


async def test_the_client_example_runs_on_the_reference_too(reference: str, tmp_path: Path) -> None:
    async with model_server() as model:
        configure(tmp_path, model)
        model.plays(says("Hello!", "m1", ["Hel", "lo!"]))
        done = await asyncio.to_thread(run_example, "from treadle", reference, tmp_path)

    assert done == "Hello!"


def run_example(name: str, server: str, home: Path) -> str:
    """Run an example as printed, with another server in place of the one it names."""
    (example,) = (block for block in blocks("python") if name in block)
    done = subprocess.run(
        [sys.executable, "-c", example.replace(".venv/bin/treadle", server)],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return done.stdout


def test_the_configuration_example_is_valid(tmp_path: Path) -> None:
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
    promised = re.findall(r"^\d\. .*|^   thread/list .*|.* outside the .*", shown, re.MULTILINE)

    done = subprocess.run(
        [sys.executable, "-m", "treadle", "demo"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )

    assert len(promised) == 6
    assert set(promised) <= set(done.stdout.splitlines())
