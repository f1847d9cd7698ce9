"""The Codex terminal UI, in its own terminal, works with our server."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.processes import environment
from tests.harness.releases import NEWEST, program
from tests.harness.scripted import client_of, playing
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import calls, says
from treadle.model.scripted.script import Response, ScriptLike
from treadle.server.server import Server
from treadle.transport.websocket.listener import WebSocketListener

pytestmark = pytest.mark.usefixtures("reference")

SECONDS = 40
CONFIG = """
approval_policy = "on-request"
sandbox_mode = "workspace-write"
disable_paste_burst = true
[tui]
screen_reader_detection_done = true
"""
# It asks about a folder that the server does not know.
TRUST = '[projects."{workspace}"]\ntrust_level = "trusted"\n'
# The replies of a terminal about its cursor position and its features.
ANSWERS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?1;2c"}
CONTROL = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_=>78])")


class Screen:
    """What a program draws. Words are whole; cursor movements may separate them."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._drawn = b""
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(fd, self._read)

    def _read(self) -> None:
        data = b""
        with suppress(OSError):  # the program has gone
            data = os.read(self._fd, 65536)
        if not data:
            asyncio.get_running_loop().remove_reader(self._fd)
        for question, answer in ANSWERS.items():
            if question in data:
                os.write(self._fd, answer)
        self._drawn += data
        self._news.set()

    @property
    def text(self) -> str:
        """All text that was drawn."""
        return CONTROL.sub(b" ", self._drawn).decode("utf-8", "replace")

    async def shows(self, word: str) -> None:
        """Wait until a word is drawn."""
        while word not in self.text:
            self._news.clear()
            await self._news.wait()

    async def press(self, key: str, until: str) -> None:
        """Press a key repeatedly until a word is drawn."""
        while until not in self.text:
            await self.press_once(key)

    async def press_once(self, key: str) -> bool:
        """Press a key, and return whether words are drawn then; frames without words always are.

        A new prompt ignores keys for a moment, to prevent accidental answers,
        and does not show it.
        """
        before = self.text.split()
        self.type(key)
        return await self._changes(before)

    async def rests(self) -> None:
        """Wait until no more words are drawn: keys that come too early end the program."""
        while await self._changes(self.text.split()):
            pass

    async def _changes(self, before: list[str]) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                while self.text.split() == before:
                    self._news.clear()
                    await self._news.wait()
        return self.text.split() != before

    def type(self, text: str) -> None:
        """Type something without waiting."""
        os.write(self._fd, text.encode())

    def close(self) -> None:
        """Stop reading."""
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)


@asynccontextmanager
async def terminal_ui(url: str, folder: Path, prompt: str) -> AsyncIterator[Screen]:
    """The terminal UI of Codex with a prompt that it sends at once."""
    workspace, codex_home = folder / "work", folder / "codex"
    codex_home.mkdir()
    (codex_home / "config.toml").write_text(CONFIG, "utf-8")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(program(NEWEST), "--remote", url, "--cd", str(workspace), prompt),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=workspace,
        env=environment(folder / "user", CODEX_HOME=str(codex_home), TERM="xterm-256color"),
        start_new_session=True,
    )
    os.close(theirs)
    screen = Screen(ours)
    try:
        yield screen
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        screen.close()


def greeting(request: ModelRequest) -> Response:
    """Answer with a greeting."""
    return says("Hello-there" if request.output_schema is None else json.dumps({"title": "A"}))


def script(request: ModelRequest) -> Response:
    """Write a file and report it; the title, which the terminal UI requests too, has a schema."""
    if request.output_schema is not None:
        return says(json.dumps({"title": "A title"}))
    if any(item["type"] == "function_call_output" for item in request.input):
        return says("Everything-is-written")
    asked = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "?"}
    return calls("exec_command", asked)


class Listening(NamedTuple):
    """A server in this process, and its address for clients in others."""

    server: Server
    url: str


@asynccontextmanager
async def listening(home: Path, script: ScriptLike = script) -> AsyncIterator[Listening]:
    """A server in this process, for clients in others."""
    listener = WebSocketListener("127.0.0.1", 0)
    await listener.start()
    async with playing(home, script) as server, asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve(listener))
        yield Listening(server, "ws://{}:{}".format(*listener.address))
        serving.cancel()


async def test_a_command_is_approved_on_the_screen_and_the_answer_is_shown(
    home: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (home / "config.toml").write_text(TRUST.format(workspace=workspace), "utf-8")
    async with (
        asyncio.timeout(SECONDS),
        listening(home) as (_, url),
        terminal_ui(url, tmp_path, "write it") as screen,
    ):
        await screen.shows("differently")
        assert not (workspace / "made").exists()
        await screen.press("y", until="Everything-is-written")

    assert (workspace / "made").exists()
    # It marks an error with a red square.
    assert "■" not in screen.text


async def test_a_folder_is_trusted_on_the_screen_and_stays_trusted(
    home: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    config = home / "config.toml"
    config.write_text("# mine\n", "utf-8")
    async with (
        asyncio.timeout(SECONDS),
        listening(home) as (_, url),
        terminal_ui(url, tmp_path, "write it") as screen,
    ):
        await screen.shows("back")
        await screen.rests()
        before = config.read_text("utf-8")
        while not await screen.press_once("\r"):
            pass
        await screen.shows("differently")

    assert before == "# mine\n"
    assert config.read_text("utf-8") == "# mine\n\n" + TRUST.format(workspace=workspace)
    assert "■" not in screen.text


async def test_a_model_and_effort_are_chosen_on_the_screen_and_saved(
    home: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    text = TRUST.format(workspace=workspace)
    (home / "config.toml").write_text(text, "utf-8")
    async with (
        asyncio.timeout(SECONDS),
        listening(home, greeting) as (server, url),
        client_of(server) as client,
        terminal_ui(url, tmp_path, "hello") as screen,
    ):
        await screen.shows("Hello-there")
        screen.type("/model")
        # The first model of the list, then the first effort.
        while not (await client.request("config/read", {}))["config"]["model_reasoning_effort"]:
            await screen.press_once("\r")

    assert (home / "config.toml").read_text("utf-8") == (
        f'model = "scripted"\nmodel_reasoning_effort = "medium"\n\n{text}'
    )
    assert "■" not in screen.text
