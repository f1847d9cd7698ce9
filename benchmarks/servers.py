"""Runs one app-server in its own home, and reads its processor time and memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from benchmarks.programs import Program, folder_for_homes

STOP_SECONDS: Final = 5.0
LISTEN_SECONDS: Final = 20.0
_SETTLE_SECONDS: Final = 3.0
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


class ServerFailed(Exception):
    """The server failed; the message holds the end of its log."""


class Memory(NamedTuple):
    """Resident bytes: in total, and with shared pages counted in proportion."""

    rss: int
    pss: int


@contextmanager
def homes() -> Iterator[Path]:
    """Yield a folder for the homes of all programs, and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="bench-home-", dir=folder_for_homes()))
    try:
        yield folder
    finally:
        # A killed server may still be writing there.
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    """One running app-server; leaving the context ends it."""

    def __init__(self, program: Program, homes: Path, *, listen: str | None = None) -> None:
        home = homes / program.name
        home.mkdir(exist_ok=True)
        self._name = program.name
        self._log = home / "stderr.log"
        command = [str(program.path), "app-server", *(["--listen", listen] if listen else [])]
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "CODEX_HOME": str(home),
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=home,
                env=environment,
                bufsize=0,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self.process as process:
            if process.stdin:
                process.stdin.close()
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()

    def kill(self) -> None:
        """Kill the server; a reader of its output sees the end of the stream."""
        self.process.kill()

    def failure(self, what: str) -> ServerFailed:
        """Return an error with the last lines of the server's log."""
        lines = self._log.read_text("utf-8", "replace").splitlines()[-5:]
        return ServerFailed("\n".join([f"{self._name}: {what}", *lines]))

    def port(self) -> int:
        """Wait for the banner with the port, and return the port.

        Raises:
            ServerFailed: no banner appears.
        """
        deadline = time.monotonic() + LISTEN_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if match := re.search(rb"listening on: ws://[^ ]*:(\d+)\s", self._log.read_bytes()):
                return int(match[1])
            time.sleep(0.01)
        raise self.failure("did not print its address")

    def cpu_seconds(self) -> float:
        """Return the processor time of all its threads since it started."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text("ascii")
        # The second field is the program's name in parentheses, and may contain any character.
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def settled_memory(self) -> Memory:
        """Return the resident memory once it is stable, or after a few seconds."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        before, now = 0, self._resident("status", "VmRSS")
        while now != before and time.monotonic() < deadline:
            time.sleep(0.2)
            before, now = now, self._resident("status", "VmRSS")
        return Memory(now, self._resident("smaps_rollup", "Pss"))

    def _resident(self, file: str, field: str) -> int:
        text = Path(f"/proc/{self.process.pid}/{file}").read_text("ascii")
        match = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
        if match is None:
            raise self.failure(f"the kernel does not report {field}")
        return int(match[1]) * 1024
