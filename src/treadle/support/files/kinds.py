"""What a path leads to; one that cannot be examined leads to nothing.

A repository or a command can leave links to places that the user may not enter, and folders without
permissions. The methods of pathlib raise an error for these.
"""

# ruff: noqa: PTH110, PTH112, PTH113

from __future__ import annotations

import os
from contextlib import suppress


def exists(path: str | os.PathLike[str]) -> bool:
    """Return whether a path leads to a file or folder."""
    return os.path.exists(path)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a path leads to a regular file."""
    return os.path.isfile(path)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a path leads to a folder."""
    return os.path.isdir(path)


def is_empty_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a path leads to a folder without entries; the first entry decides."""
    with suppress(OSError), os.scandir(path) as entries:
        return next(entries, None) is None
    return False
