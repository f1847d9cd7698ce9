"""Commands that run outside the sandbox without a user who has checked which programs they name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.engine.approvals.permission import CommandRequest, Permission
from treadle.engine.terminals.shell import allowed, reads_startup_files
from treadle.sandbox.paths import find_program
from treadle.sandbox.policy import UNRESTRICTED, Confinement
from treadle.shell.safe import is_known_safe
from treadle.shell.scripts import commands_of, script_of

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

_MOVING: Final = frozenset(". builtin cd command eval popd pushd source".split())
"""Commands of a shell that can change the folder which later commands run in."""
_BUILT_IN: Final = _MOVING | frozenset(
    ": [ alias bg break continue declare dirs echo exec exit export false fg getopts hash help "
    "history jobs kill let local printf pwd read readonly return set shift shopt test time times "
    "trap true type typeset ulimit umask unalias unset wait".split()
)
_SEARCHED: Final = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables whose folders programs and their code are loaded from."""
_NOWHERE: Final = os.devnull
"""A `PATH` in which nothing is found; an empty one would mean the folder that a command runs in."""


def free_permit(
    thread: LoadedThread, turn: ActiveTurn, request: CommandRequest, usual: Confinement
) -> Permission:
    """Let a command that a rule allows run outside the sandbox, if it runs what the rule means.

    A rule names programs and trusts these. A program that commands can write or replace, whether
    a rule gives its name or its path, stays in the sandbox. So does a program that only the user's
    start-up files could find, because the command runs without these: they, and the folders that
    they add to `PATH`, may be the work of an earlier command.
    """
    if usual.is_unrestricted:
        return Permission(UNRESTRICTED, was_asked=False)
    environ = _environ(thread, turn)
    commands = [command for command in commands_of(request.argv) if command]
    names = [command[0] for command in commands]
    if script_of(request.argv) is not None:
        names.append(request.argv[0])
        # Only the start-up files of the outermost shell can be left out.
        if commands != [[*request.argv]] and any(map(reads_startup_files, commands)):
            return Permission(usual, was_asked=False)
    # A relative path leads elsewhere after one of these.
    cwd = None if _MOVING.intersection(names) else request.cwd
    path, home = environ.get("PATH", os.defpath), environ.get("HOME")
    # Settings of programs are in the home folder too.
    is_led = home is not None and usual.may_write(str(Path(home, ".profile")))
    trusts = thread.services.boundary.is_trusted_program
    if is_led or not all(
        _is_found(name, path) and trusts(name, path, usual, cwd=cwd) for name in names
    ):
        return Permission(usual, was_asked=False)
    return Permission(UNRESTRICTED, was_asked=False, searched=_searched(thread, environ, usual))


def approved_permit(
    thread: LoadedThread, turn: ActiveTurn, request: CommandRequest, usual: Confinement
) -> Permission:
    """Let a command run outside the sandbox because it was approved.

    A command that only reads may have been approved for its words alone, perhaps by a program. Its
    words must not lead to a program that another command has planted.
    """
    searched = None
    if not usual.is_unrestricted and is_known_safe(request.argv):
        searched = _searched(thread, _environ(thread, turn), usual)
    return Permission(UNRESTRICTED, was_asked=True, searched=searched)


def _environ(thread: LoadedThread, turn: ActiveTurn) -> dict[str, str]:
    return allowed(thread.settings_of(turn).shell.environment, os.environ)


def _is_found(name: str, path: str) -> bool:
    """Whether a name leads to a program without the user's start-up files."""
    if "/" in name or name in _BUILT_IN:
        return True
    return find_program(name, cwd="/", path=path) is not None


def _searched(
    thread: LoadedThread, environ: Mapping[str, str], usual: Confinement
) -> Mapping[str, str]:
    """The variables of `_SEARCHED` without folders into which commands can have put something."""
    values = {"PATH": os.defpath, **{key: environ[key] for key in _SEARCHED if key in environ}}
    boundary = thread.services.boundary
    found = {name: boundary.trusted_path(value, usual) for name, value in values.items()}
    return {**found, "PATH": found["PATH"] or _NOWHERE}
