"""The state of a run that outlives the process: a small file, replaced as a whole."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from treadle.support.files.reading import read_regular
from treadle.support.files.unlinked import read_unlinked, replace_unlinked
from treadle.support.files.writing import real_path, replace_file
from treadle.support.home import home_folder
from treadle.unattended.usage import Usage

_MAX_BYTES: Final = 1024 * 1024


class RunState(msgspec.Struct, rename="camel", kw_only=True):
    """The progress of a run; a later run with the same prompt continues from here."""

    prompt: str
    """A digest: a different prompt is a new task on the same thread."""
    thread_id: str | None = None
    thread_total: Usage | None = None
    prompt_id: str | None = None
    """The id of the prompt's message; the thread may have it although `is_prompt_sent` is false."""
    is_prompt_sent: bool = False
    is_done: bool = False
    turns: int = 0
    failures: int = 0
    usage: Usage = Usage()
    blocked: str | None = None
    """Why the run stopped and needs a person's attention, if it does."""

    def block(self, reason: str) -> None:
        """Record why the run cannot continue."""
        self.blocked = reason

    def count(self, usage: Usage, thread_total: Usage | None) -> None:
        """Set the usage of the run and, if it is known, of its thread."""
        self.usage = usage
        self.thread_total = thread_total or self.thread_total


class StateFile:
    """The file of a state, which only a run on this machine may have written.

    It often lies in the workspace, where a command can put anything in its place, such as a state
    that names another thread. A record in the home, which no sandboxed command can write, holds the
    digests of what the last run wrote.
    """

    def __init__(self, path: Path | None, home: Path | None = None) -> None:
        """Resolve the links of the path; later ones are not followed."""
        self._path = None if path is None else real_path(path)
        folder = (home or Path(home_folder())) / "run_states"
        self._record = folder / _digest(os.fsencode(self._path or ""))
        self._written = ""

    def load(self, prompt: str) -> RunState:
        """Read the stored state; a missing, unreadable or unknown file means a new run."""
        digest = _digest(prompt.encode())
        stored = self._stored()
        if stored is None:
            return RunState(prompt=digest)
        if stored.prompt != digest:
            return RunState(
                prompt=digest,
                thread_id=stored.thread_id,
                thread_total=stored.thread_total,
                usage=stored.usage,
            )
        stored.blocked = None
        return stored

    def save(self, state: RunState) -> None:
        """Write the state; a crash leaves the old file or the new one, and both are known."""
        if self._path is None:
            return
        content = msgspec.json.encode(state)
        written = _digest(content)
        replace_file(self._record, f"{written}\n{self._written}\n".encode())
        replace_unlinked(self._path, content)
        self._written = written

    def _stored(self) -> RunState | None:
        try:
            if self._path is None:
                return None
            data = read_unlinked(self._path, _MAX_BYTES)
            known = read_regular(self._record, _MAX_BYTES).decode().split()
            if _digest(data) not in known:
                return None
            self._written = _digest(data)
            return msgspec.json.decode(data, type=RunState)
        except (OSError, ValueError, RecursionError):
            return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
