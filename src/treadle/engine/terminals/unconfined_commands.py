"""Permissions for commands that run outside the sandbox without a check of their programs."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.engine.approvals.permission import CommandRequest, Permission
from treadle.engine.terminals.git_repository import (
    is_planted,
    stays_in_folder,
    uses_git,
    without_bare_repositories,
)
from treadle.engine.terminals.shell import allowed, reads_startup_files
from treadle.sandbox.paths import find_program, real
from treadle.sandbox.policy import UNRESTRICTED, Confinement, WritableRoot
from treadle.shell.safe import is_known_safe, programs_of
from treadle.shell.scripts import commands_of, script_of

if TYPE_CHECKING:
    from treadle.engine.project.confined_git import ConfinedGit
    from treadle.engine.state import ThreadState
    from treadle.engine.turn import ActiveTurn

_MOVING: Final = frozenset(". builtin cd command eval popd pushd source".split())
"""Shell commands that can change the working folder of later commands."""
_BUILT_IN: Final = _MOVING | frozenset(
    ": [ alias bg break continue declare dirs echo exec exit export false fg getopts hash help "
    "history jobs kill let local printf pwd read readonly return set shift shopt test time times "
    "trap true type typeset ulimit umask unalias unset wait".split()
)
_SEARCH_PATHS: Final = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables with folders that programs and libraries are loaded from."""
_NOWHERE: Final = os.devnull
"""A `PATH` without programs; an empty one would mean the working folder."""


async def permit_by_rule(
    thread: ThreadState, turn: ActiveTurn, request: CommandRequest, usual: Confinement
) -> Permission:
    """Permit a command that a rule allows: outside the sandbox, if its programs are trusted.

    A rule trusts the programs that it names. A program that commands can write or replace stays
    in the sandbox, whether the rule has its name or its path. So does a program that is found only
    through the user's start-up files, because the command runs without them: an earlier command
    may have written them, or the folders that they add to `PATH`.
    """
    if usual.is_unrestricted:
        return Permission(UNRESTRICTED, was_asked=False)
    environ = _environ(thread, turn)
    commands = [command for command in commands_of(request.argv) if command]
    names = [command[0] for command in commands]
    if script_of(request.argv) is not None:
        names.append(request.argv[0])
        # Only the start-up files of the outermost shell can be disabled.
        if commands != [[*request.argv]] and any(map(reads_startup_files, commands)):
            return Permission(usual, was_asked=False)
    # After one of these, a relative path refers to another folder.
    cwd = None if _MOVING.intersection(names) else request.cwd
    path, home = environ.get("PATH", os.defpath), environ.get("HOME")
    # The home folder also contains the settings of programs.
    is_home_writable = home is not None and usual.may_write(str(Path(home, ".profile")))
    trusts = thread.services.boundary.is_trusted_program
    if is_home_writable or not all(
        _is_found(name, path) and trusts(name, path, usual, cwd=cwd) for name in names
    ):
        return Permission(usual, was_asked=False)
    if uses_git(commands) and (
        cwd is None
        or not all(map(stays_in_folder, commands))
        or await is_planted(_confined_git(thread, turn, cwd), thread.services.boundary, usual)
    ):
        return Permission(usual, was_asked=False)
    return Permission(
        UNRESTRICTED,
        was_asked=False,
        search_paths=_trusted_search_paths(thread, environ, usual),
        variables=without_bare_repositories(environ),
    )


def permit_approved(
    thread: ThreadState, turn: ActiveTurn, request: CommandRequest, usual: Confinement
) -> Permission:
    """Permit an approved command to run outside the sandbox.

    A command that only reads may have been approved by its text alone, perhaps by a program. Its
    names must not resolve to a program that another command has planted. Git that only reads stays
    in the sandbox: there are too many files that say what it runs, in the repository, those inside
    it and wherever the settings lead.
    """
    if usual.is_unrestricted:
        return Permission(UNRESTRICTED, was_asked=True)
    environ, search_paths = _environ(thread, turn), None
    if is_known_safe(request.argv):
        if not is_known_safe(request.argv, trusts_repository=False):
            return Permission(usual, was_asked=True)
        names = programs_of(request.argv)
        search_paths = _trusted_search_paths(thread, environ, usual, names)
    variables = without_bare_repositories(environ)
    return Permission(UNRESTRICTED, was_asked=True, search_paths=search_paths, variables=variables)


def permit_reading(
    thread: ThreadState, turn: ActiveTurn, request: CommandRequest, usual: Confinement
) -> Permission:
    """Permit a command that needs no approval because its text shows that it only reads.

    Its names must not resolve to programs of the workspace, with or without a sandbox.
    """
    # What the workspace contains may be a repository's, whether commands may write there or not.
    workspace = WritableRoot(real(thread.settings_of(turn).cwd))
    bounds = Confinement(writable=(*usual.writable, workspace))
    environ = _environ(thread, turn)
    # A workspace can contain the whole system, as in a container.
    names = programs_of(request.argv)
    search_paths = _trusted_search_paths(thread, environ, bounds, names, otherwise=os.defpath)
    return Permission(usual, was_asked=False, search_paths=search_paths)


def _confined_git(thread: ThreadState, turn: ActiveTurn, cwd: str) -> ConfinedGit:
    from treadle.engine.project.confined_git import ConfinedGit

    services, limits = thread.services, thread.settings_of(turn).shell.command_limits()
    return ConfinedGit(services.sandbox, services.boundary, cwd, limits)


def _environ(thread: ThreadState, turn: ActiveTurn) -> dict[str, str]:
    return allowed(thread.settings_of(turn).shell.environment, os.environ)


def _is_found(name: str, path: str) -> bool:
    """Whether a program is found without the user's start-up files."""
    if "/" in name or name in _BUILT_IN:
        return True
    return find_program(name, cwd="/", path=path) is not None


def _trusted_search_paths(
    thread: ThreadState,
    environ: Mapping[str, str],
    usual: Confinement,
    names: Collection[str] = (),
    *,
    otherwise: str = _NOWHERE,
) -> Mapping[str, str]:
    """The variables of `_SEARCH_PATHS`, without folders that commands can write.

    Nor do they contain folders in which one of these names leads to a file that commands can write.
    """
    values = {"PATH": os.defpath, **{key: environ[key] for key in _SEARCH_PATHS if key in environ}}
    boundary = thread.services.boundary
    trusted = {
        name: boundary.trusted_path(value, usual, names=names) for name, value in values.items()
    }
    return {**trusted, "PATH": trusted["PATH"] or otherwise}
