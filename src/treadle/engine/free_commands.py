"""Commands that a rule lets run outside the sandbox, without a question."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.engine.permits import CommandRequest, Permit
from treadle.engine.terminal_shell import allowed
from treadle.sandbox.policy import UNRESTRICTED, Confinement
from treadle.shell.scripts import commands_of

if TYPE_CHECKING:
    from treadle.engine.thread import Thread
    from treadle.engine.turn import Turn

_MOVING: Final = frozenset(". builtin cd command eval popd pushd source".split())
"""Commands of a shell that can change the folder which later commands run in."""


def free_permit(thread: Thread, turn: Turn, request: CommandRequest, usual: Confinement) -> Permit:
    """Let a command run outside the sandbox, if no other command can have led it astray.

    A rule names programs and trusts these. A program that commands can write or replace, whether
    a rule gives its name or its path, and a shell whose start-up files they can write, stay in
    the sandbox.
    """
    if usual.is_unrestricted:
        return Permit(UNRESTRICTED, was_asked=False)
    boundary = thread.around.boundary
    environ = allowed(thread.settings_of(turn).shell.environment, os.environ)
    path, home = environ.get("PATH", os.defpath), environ.get("HOME")
    names = [command[0] for command in commands_of(request.argv) if command]
    # A relative path leads elsewhere after one of these.
    cwd = None if _MOVING.intersection(names) else request.cwd
    is_led = home is not None and usual.may_write(str(Path(home, ".profile")))
    if is_led or not all(boundary.is_trusted_program(name, path, usual, cwd=cwd) for name in names):
        return Permit(usual, was_asked=False)
    return Permit(UNRESTRICTED, was_asked=False, path=boundary.trusted_path(path, usual))
