"""The examples of docs/testing.md are test files, and pytest runs them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

from treadle.testing import says, scripted_provider

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")
SCRIPTED, FAKE, RECORDED = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SECONDS = 55


async def passed(folder: Path, example: str, **env: str) -> str:
    """Run an example as a user would; return pytest's last line."""
    (folder / "test_example.py").write_text(example)
    # Not by the entry point: the installed package may be older than it.
    plugins = ("-p", "pytest_asyncio.plugin", "-p", "treadle.testing.plugin")
    settings = ("asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function")
    options = ("-q", "-p", "no:cacheprovider", "-W", "error", *(f"-o{each}" for each in settings))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", *plugins, *options, "test_example.py"),
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(SECONDS):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode().splitlines()[-1]


async def test_the_scripted_server_does_what_the_page_says(tmp_path: Path) -> None:
    assert (await passed(tmp_path, SCRIPTED)).startswith("3 passed")


async def test_the_fake_server_does_what_the_page_says(tmp_path: Path) -> None:
    assert (await passed(tmp_path, FAKE)).startswith("3 passed")


async def test_a_recording_made_with_a_key_is_replayed_without_one(tmp_path: Path) -> None:
    key = "sk-0123456789abcdefghijkl"
    async with scripted_provider([says("Hello!")]) as real:
        online = RECORDED.replace("https://api.openai.com/v1", real.base_url)
        assert (await passed(tmp_path, online, OPENAI_API_KEY=key)).startswith("1 passed")
    assert real.requests[0].headers["authorization"] == f"Bearer {key}"
    written = (tmp_path / "greeting.json").read_text()
    assert (len(json.loads(written)["exchanges"]), key in written) == (1, False)

    assert (await passed(tmp_path, RECORDED, OPENAI_API_KEY="")).startswith("1 passed")


def test_pytest_finds_the_plugin_of_the_installed_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    plugin = vars(import_module(module))
    fixtures = {"treadle_server", "treadle_client", "treadle_process", "virtual_clock"}
    assert fixtures <= plugin.keys()
    assert all(f"`{name}`" in PAGE for name in fixtures)
