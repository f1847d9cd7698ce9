"""Changes a file that others change too: whole or not at all, and on top of what they wrote."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from treadle.config.file import MAX_CONFIG_BYTES
from treadle.support.files.folder_lock import locked
from treadle.support.files.reading import read_whole
from treadle.support.files.writing import make_folders, sync_folder, write_file

_TRIES: Final = 10


def edit_file(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Replace what a file holds; `change` may be asked again if somebody else was faster.

    A link is followed, for people keep such files elsewhere. A new file is the owner's alone.

    Raises:
        OSError: the file cannot be read or written; what `change` raises is passed on.
    """
    # Not Path.resolve, which before Python 3.13 does not take links that lead to themselves.
    target = Path(os.path.realpath(path))
    for folder in make_folders(target.parent)[1:]:
        sync_folder(folder)
    # Where there are no locks, there is still the look before the file is replaced.
    with locked(target.parent):
        for _ in range(_TRIES):
            before = _content(target)
            after = change(before or b"")
            if after == (before or b""):
                return
            if _content(target) == before:
                _replace(target, after, is_new=before is None)
                return
    raise BlockingIOError(errno.EAGAIN, f"{path} is being changed by others all the time")


def _content(path: Path) -> bytes | None:
    try:
        return read_whole(path, MAX_CONFIG_BYTES)
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes, *, is_new: bool) -> None:
    if is_new:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    write_file(path, content)
