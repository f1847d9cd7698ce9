"""Real servers in separate processes, each with a separate home and environment."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tests.harness.descriptors import with_limit
from treadle.transport.subprocess import SubprocessTransport, spawn

T = TypeVar("T")

TREADLE = str(Path(sys.executable).with_name("treadle"))
START_SECONDS = 20.0
STOP_SECONDS = 5.0


def environment(home: Path, **extra: str) -> dict[str, str]:
    """What a server needs to run, and nothing of the machine's own configuration."""
    home.mkdir(parents=True, exist_ok=True)
    names = ("PATH", "LANG", "TMPDIR", "COVERAGE_PROCESS_CONFIG")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return kept | {
        "HOME": str(home),
        "TREADLE_HOME": str(home),
        "TERM": "xterm",
        "PYTHONWARNINGS": "always::ResourceWarning",
        **extra,
    }


def spawn_server(home: Path, *arguments: str, **extra: str) -> SubprocessTransport:
    """Start `treadle app-server` on pipes."""
    command = [TREADLE, "app-server", *arguments]
    return spawn(command, cwd=home.parent, env=environment(home, **extra))


class ServerProcess:
    """A server that listens on a socket; its stderr goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], stderr: Path) -> None:
        self.process = process
        self._stderr = stderr

    @property
    def stderr(self) -> str:
        """Everything it said so far."""
        return self._stderr.read_text("utf-8")

    def websocket_url(self) -> str:
        """Where it listens, as its banner says."""
        return self._wait(lambda: _listening(self.stderr))

    def socket_path(self, path: Path) -> Path:
        """Wait until somebody can connect: a socket has its name before it listens."""
        return self._wait(lambda: path if _accepts(path) else None)

    def wait_for_log(self, text: str) -> None:
        """Wait until stderr contains a text: a log line may follow the answer that it is about."""
        self._wait(lambda: text if text in self.stderr else None)

    def stop(self) -> int:
        """End it as a service manager would, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def _wait(self, find: Callable[[], T | None]) -> T:
        """Look until it is found: a starting process has no event that others can wait for."""
        deadline = time.monotonic() + START_SECONDS
        while (found := find()) is None:
            assert self.process.poll() is None, self.stderr
            assert time.monotonic() < deadline, f"not in time: {self.stderr}"
            time.sleep(0.005)
        return found


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _listening(text: str) -> str | None:
    match = re.search(r"listening on: (ws://\S+)\n", text)
    return match[1] if match else None


@contextmanager
def listening(
    home: Path, *arguments: str, descriptors: int | None = None, **extra: str
) -> Iterator[ServerProcess]:
    """Run `treadle app-server` on a socket until the block ends."""
    env = environment(home, **extra)
    stderr = home / "stderr"
    with stderr.open("wb") as file:
        command = [TREADLE, "app-server", *arguments]
        if descriptors is not None:
            command = with_limit(descriptors, descriptors, command)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            env=env,
        )
    try:
        yield ServerProcess(process, stderr)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
