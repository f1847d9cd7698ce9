"""Writes files so that no crash or power cut leaves a partial file.

`replace_file` is for our own files. `write_file` is for files of the user: it keeps owner, mode,
attributes, links and hard links.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from treadle.support.files.reading import NotRegularFile
from treadle.support.ids import uuid7

SCRATCH: Final = ".treadle-scratch-"
"""The prefix of temporary files that exist only while another file is being written."""

# Writes the whole content of a file; called again if the file could not be replaced at the end.
Fill: TypeAlias = Callable[[BinaryIO], object]

# For these errors a file cannot be replaced, but it may still be possible to write into it.
_CANNOT_REPLACE: Final = frozenset(
    {errno.EACCES, errno.EBUSY, errno.ENOENT, errno.EPERM, errno.EROFS, errno.EXDEV}
)
_NOT_COPIED: Final = frozenset(
    {errno.EACCES, errno.EINVAL, errno.ENODATA, errno.ENOTSUP, errno.EPERM}
)


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file's content: after a crash or power cut it is entirely the old or the new one.

    Its folder, and the names of new folders above it, are on disk when this returns.

    Raises:
        OSError: it cannot be written, and is unchanged.
    """
    folders = make_folders(path.parent)
    # A unique name, so that two writers do not share it; hidden, so that no reader finds it.
    beside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    for folder in folders:
        sync_folder(folder)


def rewrite_file(path: Path, content: bytes) -> None:
    """Write into a file that exists, so that it stays the same file under all its names.

    What is mounted on a file is detached when another one takes its name: a running command could
    then write it. A copy beside it shows first that there is room for the content, and remains if
    this process is killed meanwhile.

    Raises:
        OSError: it cannot be written.
    """
    beside = path.with_name(f"{SCRATCH}{uuid7()}")
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        replace_file(beside, content)
        # A reader sees the old content or the new one, never none.
        file.write(content)
        file.truncate()
        os.fsync(descriptor)
    beside.unlink(missing_ok=True)


def make_folders(path: Path) -> list[Path]:
    """Create a folder only for its owner; return the folders to sync for its content."""
    folders = [path]
    for folder in (path, *path.parents):
        if folder.exists():
            break
        folders.append(folder.parent)
    make_with_parents(path, 0o700)
    return folders


def make_with_parents(path: Path, mode: int = 0o777) -> None:
    """Create a folder of that mode and the folders above it; any of them may exist.

    Unlike `Path.mkdir`, does not recurse for each missing folder.

    Raises:
        OSError: it cannot be created.
    """
    missing = [path]
    while not _is_created(missing[-1], mode if len(missing) == 1 else 0o777):
        missing.append(missing[-1].parent)
    for folder in missing[-2:0:-1]:
        folder.mkdir(exist_ok=True)
    if len(missing) > 1:
        path.mkdir(mode, exist_ok=True)


def _is_created(folder: Path, mode: int) -> bool:
    """Create a folder if it does not exist; return false if the one above it is missing."""
    try:
        folder.mkdir(mode, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        return False
    return True


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Write the names in a folder to disk: what was created, renamed or removed there.

    Raises:
        OSError: it cannot be synced.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # a folder can be writable without being readable, and syncing requires reading
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot sync a folder and offer no alternative.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """Create a file, or replace its content; readers see entirely the old or the new content.

    It is on disk when this returns.

    Raises:
        NotRegularFile: the path is a pipe.
    """

    def fill(file: BinaryIO) -> None:
        file.write(data)
        file.flush()
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fsync(file.fileno())

    fill_file(path, fill)
    sync_folder(real_path(path).parent)


def fill_file(
    path: Path, fill: Fill, mode: int | None = None, *, folder: int | None = None
) -> None:
    """Write a file's content, to a temporary file where possible; without `mode`, keep the mode.

    With the descriptor of a folder, the path is a name in it, and no link is followed.
    """
    target = real_path(path) if folder is None else path
    flags = os.O_WRONLY | os.O_NONBLOCK | (0 if folder is None else os.O_NOFOLLOW)
    try:
        # Replacing a file requires no permission to write to it, so check that here.
        descriptor = os.open(target, flags, dir_fd=folder)
    except FileNotFoundError:
        _replace(target, fill, None, mode, folder)
        return
    with os.fdopen(descriptor, "wb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISFIFO(status.st_mode):
            # Its reader may be slow, and a thread of the server would wait.
            raise NotRegularFile(errno.EINVAL, "not a file", os.fspath(path))
        is_file = stat.S_ISREG(status.st_mode)
        # Other names of the same file must see the new content too.
        if (
            is_file
            and status.st_nlink == 1
            and _can_replace(target, fill, descriptor, mode, folder)
        ):
            return
        os.set_blocking(descriptor, True)
        if is_file:
            file.truncate()
        fill(file)
        if is_file and mode is not None:
            os.fchmod(descriptor, mode)


def _can_replace(
    target: Path, fill: Fill, model: int, mode: int | None, folder: int | None
) -> bool:
    try:
        _replace(target, fill, model, mode, folder)
    except OSError as error:
        if error.errno not in _CANNOT_REPLACE:
            raise
        return False
    return True


def _replace(
    target: Path, fill: Fill, model: int | None, mode: int | None, folder: int | None
) -> None:
    scratch = target.with_name(f"{SCRATCH}{uuid7()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(scratch, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if model is not None:
                _make_alike(descriptor, model)
            fill(file)
            if mode is not None:
                os.fchmod(descriptor, mode)
        os.replace(scratch, target, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(scratch, dir_fd=folder)
        raise


def _make_alike(descriptor: int, model: int) -> None:
    """Copy the owner, the mode and the attributes of the replaced file to a new one."""
    created, status = os.fstat(descriptor), os.fstat(model)
    if (created.st_uid, created.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    if not hasattr(os, "listxattr"):
        return  # this system has none that Python could copy
    for name in _attributes(model):
        try:
            os.setxattr(descriptor, name, os.getxattr(model, name))
        except OSError as error:
            # As in `shutil.copystat`: not every file system or user may set each of them.
            if error.errno not in _NOT_COPIED:
                raise


def _attributes(descriptor: int) -> list[str]:
    try:
        return os.listxattr(descriptor)
    except OSError:
        return []


def real_path(path: Path) -> Path:
    """Resolve every link of a path; a link that leads to itself stays unresolved."""
    # Not Path.resolve, which before Python 3.13 rejects links that lead to themselves.
    return Path(os.path.realpath(path))
