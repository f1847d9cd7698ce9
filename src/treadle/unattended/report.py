"""What came of an unattended turn, and what there is to show for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.client._compat.lenient import Item
from treadle.client.result import TurnResult
from treadle.protocol.item import FileChangeThreadItem
from treadle.unattended.usage import Usage


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A workspace under git at one moment; `None` where it is not under git or git cannot tell."""

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
        return bool(self.files) or bool(self.diff) or self._differs

    @property
    def commit(self) -> str | None:
        """The commit that the turn made, if it made one."""
        return self.after.head if self.after.head != self.before.head else None

    @property
    def _differs(self) -> bool:
        """Whether git reports another state than before; what it does not report proves nothing."""
        before, after = self.before, self.after
        pairs = (before.head, after.head), (before.changes, after.changes)
        return any(now is not None and now != then for then, now in pairs)


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
