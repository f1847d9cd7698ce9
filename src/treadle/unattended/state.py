"""What of a run outlives the process: a small file, replaced as a whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from treadle.support.files.writing import replace_file
from treadle.unattended.usage import Usage


class RunState(msgspec.Struct, rename="camel", kw_only=True):
    """Where a run stands; a later one with the same prompt goes on from here."""

    prompt: str
    """A digest: another prompt is another piece of work on the same thread."""
    thread_id: str | None = None
    thread_total: Usage | None = None
    is_prompt_sent: bool = False
    is_done: bool = False
    turns: int = 0
    failures: int = 0
    usage: Usage = Usage()
    blocked: str | None = None
    """Why the run stopped and needs a person, if it does."""

    @classmethod
    def load(cls, path: Path | None, prompt: str) -> RunState:
        """Read what was kept, if anything was and can be read."""
        digest = hashlib.sha256(prompt.encode()).hexdigest()
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=cls) if path else None
        except (OSError, msgspec.MsgspecError):
            kept = None
        if kept is None:
            return cls(prompt=digest)
        if kept.prompt != digest:
            return cls(
                prompt=digest,
                thread_id=kept.thread_id,
                thread_total=kept.thread_total,
                usage=kept.usage,
            )
        kept.blocked = None
        return kept

    def save(self, path: Path | None) -> None:
        """Keep it; a crash leaves the old file or the new one."""
        if path is None:
            return
        # Beside it under a name that no command of the workspace can foresee and make a link.
        replace_file(path, msgspec.json.encode(self))
