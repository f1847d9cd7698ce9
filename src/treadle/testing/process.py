"""A Treadle server as a separate process, whose model plays a script."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from treadle.model.base import ModelRequest
from treadle.model.provider import REQUESTS_VARIABLE, SCRIPT_VARIABLE
from treadle.model.scripted.script import Response, Script
from treadle.testing.environment import environment, furnish

T = TypeVar("T")

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10.0


class ProcessFailed(Exception):
    """A server did not start or did not stop; `stderr` is its output."""

    def __init__(self, what: str, stderr: str) -> None:
        super().__init__(f"{what}; stderr: {stderr or 'empty'}")
        self.stderr = stderr


class TreadleProcess:
    """One home, one script, and three ways to reach a server that uses them.

    `command` starts a server on its own pipes, for clients that start theirs. `url` and `socket`
    start a listening server when they are first read; leaving the block ends it.
    """

    def __init__(
        self,
        script: Script | Sequence[Response] | None = None,
        *,
        home: Path,
        config: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.home = furnish(home, config)
        self._requests = home / "requests.jsonl"
        variables = {REQUESTS_VARIABLE: str(self._requests)}
        if script is not None:
            variables[SCRIPT_VARIABLE] = str(_write_script(home / "script.json", script))
        self.env = environment(home, {**variables, **(env or {})})
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # Not in the home: the path of a socket must be short.
        self._folder = TemporaryDirectory(prefix="treadle-")

    @property
    def command(self) -> list[str]:
        """The command that starts a server on its own pipes; it sets the environment itself."""
        return self._command("stdio://")

    @cached_property
    def url(self) -> str:
        """The `ws://` address of a listening server."""
        process = self._start("ws://127.0.0.1:0", "websocket")
        return self._wait(process, "websocket", self._find_url)

    @cached_property
    def socket(self) -> Path:
        """The control socket of a listening server."""
        path = Path(self._folder.name) / "s"
        process = self._start(f"unix://{path}", "unix")
        return self._wait(process, "unix", lambda: path if _accepts(path) else None)

    @property
    def requests(self) -> list[ModelRequest]:
        """The requests to the scripted model, in order, from all servers of this home."""
        if not self._requests.exists():
            return []
        lines = self._requests.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=ModelRequest) for line in lines]

    @property
    def stderr(self) -> str:
        """The stderr of the listening servers."""
        return "".join(self._stderr(name) for name in self._running)

    def kill(self) -> None:
        """Kill the listening servers; reading an address starts a new one."""
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        self._forget()

    def stop(self) -> None:
        """Stop the listening servers with SIGTERM.

        Raises:
            ProcessFailed: one of them did not end, or failed.
        """
        for name, process in self._running.items():
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                raise ProcessFailed("the server does not stop", self._stderr(name)) from None
            if code:
                raise ProcessFailed(f"the server ended with {code}", self._stderr(name))
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.stop()
        finally:
            self.kill()
            self._folder.cleanup()

    def _command(self, listen: str) -> list[str]:
        # A client would pass on its own environment, including keys.
        variables = [f"{name}={value}" for name, value in self.env.items()]
        server = [sys.executable, "-P", "-m", "treadle", "app-server", "--listen", listen]
        return ["env", "-i", *variables, *server]

    def _start(self, listen: str, name: str) -> subprocess.Popen[bytes]:
        with self._log(name).open("wb") as file:
            process = subprocess.Popen(
                self._command(listen),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )
        self._running[name] = process
        return process

    def _wait(self, process: subprocess.Popen[bytes], name: str, find: Callable[[], T | None]) -> T:
        """Poll until `find` succeeds: a starting process has no event to wait for."""
        deadline = time.monotonic() + START_SECONDS
        while (address := find()) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                process.wait()
                del self._running[name]
                raise ProcessFailed("the server does not listen", self._stderr(name))
            time.sleep(0.005)
        return address

    def _find_url(self) -> str | None:
        match = re.search(r"listening on: (ws://\S+)\n", self._stderr("websocket"))
        return match[1] if match else None

    def _log(self, name: str) -> Path:
        return self.home / f"stderr-{name}"

    def _stderr(self, name: str) -> str:
        return self._log(name).read_text("utf-8", "replace")

    def _forget(self) -> None:
        self._running.clear()
        for name in ("url", "socket"):
            vars(self).pop(name, None)


def _write_script(path: Path, script: Script | Sequence[Response]) -> Path:
    if not isinstance(script, Script):
        script = Script(responses=script)
    try:
        path.write_bytes(msgspec.json.encode(script))
    except TypeError as error:
        raise TypeError(f"a process cannot play this script: {error}") from error
    return path


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(os.fspath(path)) == 0
