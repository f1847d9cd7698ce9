"""The working folder of this process, to which relative paths refer.

A command can remove the folder that the server was started in. The system then has no name for
it, and requests that name another folder must not fail for that.
"""

# Paths are strings here, as in the calls of the system.
# ruff: noqa: PTH109, PTH118

from __future__ import annotations

import os
from contextlib import suppress

_known = "/"


def working_folder() -> str:
    """Return the working folder, or the last name that it had if it was removed."""
    global _known  # noqa: PLW0603 - a process has one working folder
    with suppress(FileNotFoundError):
        _known = os.getcwd()
    return _known


def absolute(path: str) -> str:
    """Return a path that does not depend on the working folder, with its `..` and links."""
    return path if path.startswith("/") else os.path.join(working_folder(), path)


# The folder may be gone when it is first asked for.
working_folder()
