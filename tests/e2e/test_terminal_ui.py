"""The Codex terminal UI, on a terminal of its own, works with our server."""

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

from codex_cli_bin import bundled_codex_path

from tests.harness.processes import environment
from tests.harness.scripted import playing
from treadle.model.base import ModelRequest
from treadle.model.script import Response
from treadle.model.scripted import calls, says
from treadle.transport.websocket import WebSocketListener

SECONDS = 40
CONFIG = """
approval_policy = "on-request"
sandbox_mode = "workspace-write"
[tui]
screen_reader_detection_done = true
"""
# It asks about a folder that the server does not know.
TRUST = '[projects."{workspace}"]\ntrust_level = "trusted"\n'
# What a terminal says when it is asked where its cursor is, and what it can do.
ANSWERS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?1;2c"}
CONTROL = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_=>78])")


class Screen:
    """What a program draws. Words are whole; what is between them may be a move of the cursor."""

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
        """All that was ever drawn."""
        return CONTROL.sub(b" ", self._drawn).decode("utf-8", "replace")

    async def shows(self, word: str) -> None:
        """Wait until a word has been drawn."""
        while word not in self.text:
            self._news.clear()
            await self._news.wait()

    async def press(self, key: str, until: str) -> None:
        """Press a key, and again whenever something is drawn, until a word has been drawn.

        A question that has just come up is deaf for a moment, lest somebody answer it by accident.
        """
        while until not in self.text:
            os.write(self._fd, key.encode())
            self._news.clear()
            await self._news.wait()

    def close(self) -> None:
        """Look no longer."""
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
        *(str(bundled_codex_path()), "--remote", url, "--cd", str(workspace), prompt),
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
        process.kill()
        await process.wait()
        screen.close()


def script(request: ModelRequest) -> Response:
    """Write a file and say so; a title, which the terminal UI asks for besides, has a schema."""
    if request.output_schema is not None:
        return says(json.dumps({"title": "A title"}))
    if any(item["type"] == "function_call_output" for item in request.input):
        return says("Everything-is-written")
    asked = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "?"}
    return calls("exec_command", asked)


@asynccontextmanager
async def listening(home: Path) -> AsyncIterator[str]:
    """A server in this process, for clients in others."""
    listener = WebSocketListener("127.0.0.1", 0)
    await listener.start()
    async with playing(home, script) as server, asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve(listener))
        yield "ws://{}:{}".format(*listener.address)
        serving.cancel()


async def test_a_command_is_approved_on_the_screen_and_the_answer_shown(
    home: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (home / "config.toml").write_text(TRUST.format(workspace=workspace), "utf-8")
    async with (
        asyncio.timeout(SECONDS),
        listening(home) as url,
        terminal_ui(url, tmp_path, "write it") as screen,
    ):
        await screen.shows("differently")
        assert not (workspace / "made").exists()
        await screen.press("y", until="Everything-is-written")

    assert (workspace / "made").exists()
    # It marks what went wrong with a red square.
    assert "■" not in screen.text
