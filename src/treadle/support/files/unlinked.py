"""Opens and replaces files by paths without links, where a command may make one at any moment."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from treadle.support.files.reading import FileTooLarge, NotRegularFile

_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(path: str) -> int:
    """Open a folder by a path without links, one folder after the other.

    Raises:
        OSError: one is missing, or is a link by now.
    """
    folder = os.open("/", _FOLDER)
    for name in filter(None, path.split("/")):
        try:
            below = os.open(name, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def read_unlinked(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    Raises:
        OSError: it is missing, too large or not a file, or its path has a link by now.
    """
    folder = open_folder(str(path.parent))
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path.name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegularFile(errno.EINVAL, "not a file", os.fspath(path))
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FileTooLarge(path, limit)
    return data


def make_unlinked_folders(path: str) -> None:
    """Create a folder and those above it, unless they exist.

    Raises:
        OSError: one cannot be created, or is a link.
    """
    folder = os.open("/", _FOLDER)
    try:
        for name in filter(None, path.split("/")):
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            below = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
    finally:
        os.close(folder)


def replace_unlinked(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file as a whole, in the folder that its path names.

    The umask of the process applies to the mode.

    Raises:
        OSError: it cannot be written, or its path has a link by now.
    """
    folder = open_folder(str(path.parent))
    # The temporary file has a name that no command in the workspace can predict and link.
    beside = f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(beside, flags, mode, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            os.rename(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(beside, dir_fd=folder)
            raise
    finally:
        os.close(folder)
