"""Changes a file that other programs change too: atomically, and on top of their changes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from treadle.config.file import MAX_CONFIG_BYTES
from treadle.support.files.folder_lock import locked
from treadle.support.files.reading import read_whole
from treadle.support.files.writing import make_folders, rewrite_file, sync_folder, write_file

_TRIES: Final = 10


def edit_file(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Replace a file's content; `change` is called again if another program was faster.

    A link is followed, since users keep such files elsewhere. A new file is private to its owner.

    Raises:
        OSError: the file cannot be read or written; errors of `change` propagate.
    """
    # Not Path.resolve, which raises for a loop of links before Python 3.13.
    target = Path(os.path.realpath(path))
    for folder in make_folders(target.parent)[1:]:
        sync_folder(folder)
    # Without locks, the comparison before the replacement still detects most changes.
    with locked(target.parent):
        for _ in range(_TRIES):
            before = _content(target)
            after = change(before or b"")
            if after == (before or b""):
                return
            if _content(target) == before:
                if before is not None and path.is_symlink():
                    # The file may be in a workspace, where commands have it mounted.
                    rewrite_file(target, after)
                else:
                    _replace(target, after, is_new=before is None)
                return
    raise BlockingIOError(errno.EAGAIN, f"{path} keeps being changed by other programs")


def _content(path: Path) -> bytes | None:
    try:
        return read_whole(path, MAX_CONFIG_BYTES)
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes, *, is_new: bool) -> None:
    if is_new:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    write_file(path, content)
