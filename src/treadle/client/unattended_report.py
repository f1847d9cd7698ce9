"""What came of an unattended turn, and what there is to show for it."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from treadle.client.lenient import Item
from treadle.client.result import TurnResult
from treadle.client.unattended_usage import Usage
from treadle.protocol.item import FileChangeThreadItem

_GIT_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A workspace under git at one moment; both are `None` if it is not under git."""

    head: str | None = None
    changes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a turn left in the workspace: an end without an error is no proof of work."""

    files: tuple[str, ...] = ()
    """Files that the turn's edits changed."""
    diff: str | None = None
    """The turn's edits, as the server tells them."""
    before: Snapshot = field(default_factory=Snapshot)
    after: Snapshot = field(default_factory=Snapshot)

    @property
    def is_any(self) -> bool:
        """Whether anything changed."""
        return bool(self.files) or bool(self.diff) or self.before != self.after

    @property
    def commit(self) -> str | None:
        """The commit that the turn made, if it made one."""
        return self.after.head if self.after.head != self.before.head else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReport:
    """One turn of a session."""

    session_id: str
    number: int
    """Which turn of the session this was, counted from one."""
    result: TurnResult[None]
    usage: Usage
    """What this turn used."""
    evidence: Evidence

    @property
    def agent_message(self) -> str:
        """The agent's last word."""
        return self.result.agent_message


def edited_files(items: list[Item]) -> tuple[str, ...]:
    """The files that edits were made to, each once."""
    made = [
        change.path
        for item in items
        if isinstance(item, FileChangeThreadItem) and item.status == "completed"
        for change in item.changes
    ]
    return tuple(dict.fromkeys(made))


async def snapshot(cwd: Path) -> Snapshot:
    """Where the workspace stands; nothing if it is not under git or git is not there."""
    head = await _git(cwd, "rev-parse", "HEAD")
    changes = await _git(cwd, "status", "--porcelain=v1", "--untracked-files=all", "--", ".")
    return Snapshot(head, changes)


async def _git(cwd: Path, *words: str) -> str | None:
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(cwd), *words]
    with suppress(OSError, TimeoutError):
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(_GIT_SECONDS):
                said, _ = await process.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        return said.decode("utf-8", "replace").strip() if process.returncode == 0 else None
    return None
