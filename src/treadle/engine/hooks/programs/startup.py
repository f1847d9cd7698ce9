"""Decides whether the shell of a hook may read the user's start-up files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from treadle.engine.state import ThreadState

_FILES: Final = (
    *(".profile", ".bash_profile", ".bash_login", ".bashrc"),
    *(".zshenv", ".zprofile", ".zshrc", ".zlogin"),
)


def may_read_startup_files(thread: ThreadState, env: Mapping[str, str]) -> bool:
    """Return whether a shell with this environment reads no start-up file of a sandboxed command.

    An earlier command, which worked in the home folder, may have written one too.
    """
    settings, boundary = thread.settings, thread.services.boundary
    confinement = boundary.confine(settings.sandbox, settings.cwd)
    if confinement.is_unrestricted:
        return True
    homes = [env[name] for name in ("HOME", "ZDOTDIR") if env.get(name)]
    paths = [f"{home}/{name}" for home in homes for name in _FILES]
    paths += [env[name] for name in ("BASH_ENV", "ENV") if env.get(name)]
    return all(
        path.startswith("/") and boundary.is_fixed(os.path.normpath(path), confinement)
        for path in paths
    )
