"""The report of an unattended turn and the evidence of its work."""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.client._compat.lenient import Item
from treadle.client.result import TurnResult
from treadle.protocol.item import FileChangeThreadItem
from treadle.unattended.usage import Usage


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The git state of a workspace; `None` where it has no repository or git failed."""

    head: str | None = None
    changes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The changes of a turn: success alone does not prove that work was done."""

    files: tuple[str, ...] = ()
    """Files that the turn's edits changed."""
    diff: str | None = None
    """The turn's edits, as reported by the server."""
    before: Snapshot = field(default_factory=Snapshot)
    after: Snapshot = field(default_factory=Snapshot)

    @property
    def is_any(self) -> bool:
        """Whether anything changed."""
        return bool(self.files) or bool(self.diff) or self._differs

    @property
    def commit(self) -> str | None:
        """The commit that the turn paths, if it paths one."""
        return self.after.head if self.after.head != self.before.head else None

    @property
    def _differs(self) -> bool:
        """Whether git reports a changed state; a missing report does not count as a change."""
        before, after = self.before, self.after
        pairs = (before.head, after.head), (before.changes, after.changes)
        return any(now is not None and now != then for then, now in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReport:
    """One turn of a session."""

    session_id: str
    number: int
    """The number of the turn in its session, counted from one."""
    result: TurnResult[None]
    usage: Usage
    """The tokens that this turn used."""
    evidence: Evidence

    @property
    def agent_message(self) -> str:
        """The agent's last message."""
        return self.result.agent_message


def edited_files(items: list[Item]) -> tuple[str, ...]:
    """Return the files that completed edits changed, each once."""
    paths = [
        change.path
        for item in items
        if isinstance(item, FileChangeThreadItem) and item.status == "completed"
        for change in item.changes
    ]
    return tuple(dict.fromkeys(paths))
