"""The state of a run that outlives the process: a small file, replaced as a whole."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from treadle.support.files.reading import read_regular
from treadle.support.files.writing import replace_file
from treadle.unattended.usage import Usage

_MAX_BYTES: Final = 1024 * 1024


class RunState(msgspec.Struct, rename="camel", kw_only=True):
    """The progress of a run; a later run with the same prompt continues from here."""

    prompt: str
    """A digest: a different prompt is a new task on the same thread."""
    thread_id: str | None = None
    thread_total: Usage | None = None
    is_prompt_sent: bool = False
    is_done: bool = False
    turns: int = 0
    failures: int = 0
    usage: Usage = Usage()
    blocked: str | None = None
    """Why the run stopped and needs a person's attention, if it does."""

    @classmethod
    def load(cls, path: Path | None, prompt: str) -> RunState:
        """Read the stored state; a missing or unreadable file means a new run."""
        digest = hashlib.sha256(prompt.encode()).hexdigest()
        try:
            # It may lie in the workspace, where a command can put anything in its place.
            data = read_regular(path, _MAX_BYTES) if path else None
            stored = msgspec.json.decode(data, type=cls) if data is not None else None
        except (OSError, msgspec.MsgspecError, RecursionError):
            stored = None
        if stored is None:
            return cls(prompt=digest)
        if stored.prompt != digest:
            return cls(
                prompt=digest,
                thread_id=stored.thread_id,
                thread_total=stored.thread_total,
                usage=stored.usage,
            )
        stored.blocked = None
        return stored

    def block(self, reason: str) -> None:
        """Record why the run cannot continue."""
        self.blocked = reason

    def count(self, usage: Usage, thread_total: Usage | None) -> None:
        """Set the usage of the run and, if it is known, of its thread."""
        self.usage = usage
        self.thread_total = thread_total or self.thread_total

    def save(self, path: Path | None) -> None:
        """Write the state; a crash leaves the old file or the new one."""
        if path is None:
            return
        # The temporary file has a name that no command in the workspace can predict and link.
        replace_file(path, msgspec.json.encode(self))
