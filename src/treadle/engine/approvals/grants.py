"""What the user granted beyond one action: for a turn, or until the thread is unloaded.

A turn that continues under another server process keeps its grants. Otherwise a grant does not
outlive the process that received it, as in the reference (measured with 0.163.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from treadle.engine.approvals.permission import CommandKey
from treadle.engine.events.log import EventLog
from treadle.protocol.permission import AdditionalPermissionProfile
from treadle.store.records import Granted

if TYPE_CHECKING:
    from treadle.engine.turn import ActiveTurn


class Grants:
    """The grants of one thread; each is stored when it is given."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._commands: set[CommandKey] = set()
        self._files: set[str] = set()
        self._session: list[AdditionalPermissionProfile] = []
        self._turns: dict[str, list[AdditionalPermissionProfile]] = {}

    def has_command(self, key: CommandKey) -> bool:
        """Whether a command may run without approval."""
        return key in self._commands

    def has_files(self, paths: Iterable[str]) -> bool:
        """Whether all these files may be changed without approval."""
        return self._files.issuperset(paths)

    def permissions(self, turn: ActiveTurn) -> Sequence[AdditionalPermissionProfile]:
        """What commands of a turn may do beyond the sandbox policy."""
        return *self._session, *self._turns.get(turn.id, ())

    def add_command(self, turn: ActiveTurn, key: CommandKey) -> None:
        """Allow a command for the session."""
        self._record(turn, Granted(turn.id, "session", command=key))

    def add_files(self, turn: ActiveTurn, paths: Sequence[str]) -> None:
        """Allow edits of files for the session."""
        self._record(turn, Granted(turn.id, "session", files=list(paths)))

    def add_permissions(
        self,
        turn: ActiveTurn,
        added: AdditionalPermissionProfile,
        scope: Literal["turn", "session"],
    ) -> None:
        """Widen what commands may do."""
        self._record(turn, Granted(turn.id, scope, permissions=added))

    def review_all(self, turn: ActiveTurn) -> None:
        """Let the guardian judge every further action of the turn."""
        self._record(turn, Granted(turn.id, "turn", reviews_all=True))

    def restore(self, turn: ActiveTurn, grants: Iterable[Granted]) -> None:
        """Restore the grants that a continued turn had under an earlier server process."""
        for grant in grants:
            if grant.scope == "session" or grant.turn_id == turn.id:
                self._apply(turn, grant)

    def _record(self, turn: ActiveTurn, grant: Granted) -> None:
        self._log.record(grant)
        self._apply(turn, grant)

    def _apply(self, turn: ActiveTurn, grant: Granted) -> None:
        if grant.command is not None:
            self._commands.add(grant.command)
        self._files.update(grant.files)
        if grant.permissions is not None and grant.scope == "session":
            self._session.append(grant.permissions)
        elif grant.permissions is not None:
            if turn.id not in self._turns:
                turn.at_end(lambda: self._forget(turn))
            self._turns.setdefault(turn.id, []).append(grant.permissions)
        if grant.reviews_all:
            turn.adjust(approvals_reviewer="auto_review")
            turn.reviews_all = True

    def _forget(self, turn: ActiveTurn) -> None:
        self._turns.pop(turn.id, None)
