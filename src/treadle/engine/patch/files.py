"""Applies the edits of a patch: all of them, or none.

New contents are written beside the files, which are then replaced. Each folder of a path is opened
one by one without following links, so that a checked folder cannot be replaced by a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from msgspec import Struct

from treadle.engine.patch.effort import MAX_BYTES, Effort
from treadle.engine.patch.plan import FileEdit, Target
from treadle.engine.patch.reading import read_content
from treadle.engine.patch.syntax import PatchError
from treadle.support.files.links import follow
from treadle.support.files.reading import open_regular
from treadle.support.ids import uuid7

MAX_FOLDERS: Final = 256
"""The most folders that one patch may write to or create: each needs an open descriptor."""
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_SET_ID: Final = stat.S_ISUID | stat.S_ISGID  # files that the model writes never change the user


class EditFailed(Exception):
    """Nothing was changed; the text is for the model."""


class Stale(Exception):
    """A file has changed since the edits were planned, and nothing was changed."""


class Blob(Struct, frozen=True):
    """The content of a path, and its mode in git."""

    data: bytes
    mode: int = 0o100644


class Changed(Struct, frozen=True):
    """The change of a path without links; `source` is the path that it was moved from."""

    path: str
    before: Blob | None
    after: Blob | None
    source: str | None = None


def real_path(path: str, *, is_entry: bool = False) -> str:
    """A path without links; with `is_entry`, the last part may be a link, which is removed.

    Raises:
        PatchError: it leads through too many links.
    """
    place = Path(path)
    way = follow(str(place.parent) if is_entry else path)
    if way.is_too_long:
        raise PatchError(f"{path} leads through too many links")
    return str(Path(way.place, place.name)) if is_entry else way.place


def touched(targets: Sequence[Target], effort: Effort) -> list[tuple[str, str | None]]:
    """The paths of the files in a patch and their new paths if moved, without links.

    Raises:
        PatchError: two operations name the same file, of which the second would undo the first;
            or a path leads through too many links.
        Abandoned: the caller was cancelled.
    """
    pairs: list[tuple[str, str | None]] = []
    for target in targets:
        effort.check()
        pairs.append(_touched(target))
    taken: set[str] = set()
    for path in (path for pair in pairs for path in pair if path is not None):
        if path in taken:
            raise PatchError(f"invalid patch: multiple operations target {path}")
        taken.add(path)
    return pairs


def _touched(target: Target) -> tuple[str, str | None]:
    if target.move_path is not None:
        return real_path(target.path, is_entry=True), real_path(target.move_path)
    return real_path(target.path, is_entry=target.is_removal), None


def carry_out(
    edits: Sequence[FileEdit], paths: Sequence[tuple[str, str | None]], effort: Effort
) -> list[Changed]:
    """Apply all edits at these paths; return the changes.

    Raises:
        EditFailed: one of them cannot be applied, so none was.
        Stale: the content of a file differs from the plan.
        PatchError: the patch reads too much.
        Abandoned: the caller was cancelled before the first file was changed.
    """
    with _Work(effort) as work:
        for edit, (path, target) in zip(edits, paths, strict=True):
            effort.check()
            if edit.kind == "delete":
                work.remove(path, edit, "Failed to delete file")
            elif target is None:
                work.write(path, edit)
            else:
                work.write(target, edit, source=path)
                work.remove(path, edit, "Failed to remove original")
        effort.begin_commit()
        return work.commit()


class _Step(Struct):
    """A path that is written or removed; its folder is open."""

    folder: int
    path: str
    failure: str
    is_removal: bool = False
    source: str | None = None
    temporary: str | None = None
    before: Blob | None = None
    after: Blob | None = None

    @property
    def name(self) -> str:
        return os.path.basename(self.path)  # noqa: PTH119 - no object is needed for it


class _Work:
    """Prepared steps, and the temporary files to remove in any case."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._steps: list[_Step] = []
        # The open folders of files by path, and the open parents of created folders.
        self._folders: dict[str, int] = {}
        self._parents: list[int] = []
        self._made: list[tuple[int, str]] = []
        self._undo: list[Callable[[], None]] = []
        self._backups: list[tuple[int, str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._roll_back()
        self._clear()
        for folder in (*self._folders.values(), *self._parents):
            os.close(folder)

    def _clear(self) -> None:
        """Remove temporary files and backups."""
        made = [(step.folder, step.temporary) for step in self._steps if step.temporary]
        for folder, name in [*self._backups, *made]:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)

    def write(self, path: str, edit: FileEdit, *, source: str | None = None) -> None:
        """Prepare the new content of a path; a moved file keeps its mode."""
        failure = f"Failed to write file {edit.move_path or edit.path}"
        try:
            folder = self._folder(path, makes=True)
            step = _Step(folder, path, failure, source=source)
            status = _stat(folder, step.name)
            step.before = None if status is None else self._blob(step, status)
            if edit.kind == "update" and source is None:
                _check_planned(step.before, edit)
            model = status if source is None else _stat(self._folder(source), _name(source))
            self._steps.append(step)
            step.after = Blob(edit.new, self._fill(step, edit.new, status, model))
        except OSError as error:
            # The model does not get the text of system errors, as in the reference.
            raise EditFailed(failure if error.errno else f"{failure}: {error}") from error

    def _fill(
        self,
        step: _Step,
        data: bytes,
        status: os.stat_result | None,
        model: os.stat_result | None,
    ) -> int:
        """Write the new content beside the old, if permitted; return its mode."""
        step.temporary = _temporary()
        try:
            return _write_new(step.temporary, step.folder, data, model)
        except PermissionError:
            step.temporary = None
            if status is None:
                raise
            return _git_mode(status.st_mode)

    def remove(self, path: str, edit: FileEdit, failure: str) -> None:
        """Prepare the removal of a path."""
        failure = f"{failure} {edit.path}"
        try:
            folder = self._folder(path)
            step = _Step(folder, path, failure, is_removal=True)
            status = os.stat(step.name, dir_fd=folder, follow_symlinks=False)
            step.before = self._blob(step, status)
        except OSError as error:
            raise EditFailed(failure) from error
        # A moved link is removed as a link; its target was read through it.
        if edit.kind == "update" and not stat.S_ISLNK(status.st_mode):
            _check_planned(step.before, edit)
        self._steps.append(step)

    def commit(self) -> list[Changed]:
        """Apply the prepared steps."""
        for step in self._steps:
            try:
                # No step after the last one can fail.
                self._do(step, keeps_old=step is not self._steps[-1])
            except OSError as error:
                raise EditFailed(step.failure) from error
        return [Changed(step.path, step.before, step.after, step.source) for step in self._steps]

    def _do(self, step: _Step, *, keeps_old: bool) -> None:
        try:
            self._swap(step, keeps_old=keeps_old)
        except OSError:
            # A mounted file, or one in a folder of another user, can only be overwritten.
            if step.before is None or step.after is None:
                raise
            old = step.before.data
            self._undo.append(lambda: _overwrite(step, old))
            _overwrite(step, step.after.data)

    def _swap(self, step: _Step, *, keeps_old: bool) -> None:
        folder, name = step.folder, step.name
        if step.after is not None and step.temporary is None:
            raise PermissionError(errno.EACCES, "cannot create a file here")
        if keeps_old and step.before is not None:
            self._keep(folder, name)
        elif keeps_old:
            self._undo.append(lambda: os.unlink(name, dir_fd=folder))
        if step.temporary is None:
            _unlink(folder, name)
        else:
            os.replace(step.temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            step.temporary = None

    def _keep(self, folder: int, name: str) -> None:
        """Link or rename the file to a backup, to restore it later."""
        backup = _temporary()
        self._backups.append((folder, backup))
        try:
            os.link(name, backup, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError:
            # Not every file system supports hard links, and not every file may get one.
            os.rename(name, backup, src_dir_fd=folder, dst_dir_fd=folder)
        self._undo.append(lambda: _put_back(folder, backup, name))

    def _roll_back(self) -> None:
        for undo in reversed(self._undo):
            try:
                undo()
            except OSError:
                # Keep the backups if a file cannot be restored.
                self._backups.clear()
        self._clear()
        for folder, name in reversed(self._made):
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=folder)

    def _folder(self, path: str, *, makes: bool = False) -> int:
        """Open the folder of a path part by part, without following links."""
        whole, _, _ = path.rpartition("/")
        if whole in self._folders:
            return self._folders[whole]
        folder = os.open("/", _FOLDER)
        try:
            for name in path.split("/")[1:-1]:
                folder = self._below(folder, name, makes=makes)
        except BaseException:
            if folder not in self._parents:
                os.close(folder)
            raise
        self._folders[whole] = folder
        return folder

    def _below(self, parent: int, name: str, *, makes: bool) -> int:
        """Open a folder in another one, which is closed unless the rollback needs it."""
        if len(self._folders) + len(self._parents) >= MAX_FOLDERS:
            raise OSError(f"a patch may write to at most {MAX_FOLDERS} folders")
        try:
            folder = os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            if not makes:
                raise
            self._parents.append(parent)
            os.mkdir(name, dir_fd=parent)
            self._made.append((parent, name))
            return os.open(name, _FOLDER, dir_fd=parent)
        os.close(parent)
        return folder

    def _blob(self, step: _Step, status: os.stat_result) -> Blob:
        """The current content, for the diff of the turn."""
        if stat.S_ISLNK(status.st_mode) and step.is_removal:
            return Blob(os.fsencode(os.readlink(step.name, dir_fd=step.folder)), 0o120000)
        descriptor = open_regular(step.name, dir_fd=step.folder, follow_symlinks=False)
        data = read_content(descriptor, step.path, MAX_BYTES, self._effort)
        return Blob(data, _git_mode(status.st_mode))


def _check_planned(before: Blob | None, edit: FileEdit) -> None:
    if before is None or before.data != edit.old:
        raise Stale


def _put_back(folder: int, backup: str, name: str) -> None:
    kept, status = os.stat(backup, dir_fd=folder, follow_symlinks=False), _stat(folder, name)
    if status is None or status.st_ino != kept.st_ino:
        os.replace(backup, name, src_dir_fd=folder, dst_dir_fd=folder)


def _overwrite(step: _Step, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(step.name, flags, dir_fd=step.folder)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - it is open already
        file.write(data)
        file.truncate()


def _unlink(folder: int, name: str) -> None:
    # It does not exist any more if it was renamed to a backup.
    if _stat(folder, name) is not None:
        os.unlink(name, dir_fd=folder)


def _write_new(name: str, folder: int, data: bytes, model: os.stat_result | None) -> int:
    """Write a new file with the owner and mode of another one; return its mode in git."""
    descriptor = os.open(name, _NEW, 0o666, dir_fd=folder)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - it is open already
        if model is not None and stat.S_ISREG(model.st_mode):
            made = os.fstat(descriptor)
            if (made.st_uid, made.st_gid) != (model.st_uid, model.st_gid):
                # Only root can change the owner; for others the file stays their own.
                with contextlib.suppress(OSError):
                    os.fchown(descriptor, model.st_uid, model.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(model.st_mode) & ~_SET_ID)
        file.write(data)
        return _git_mode(os.fstat(descriptor).st_mode)


def _stat(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _git_mode(mode: int) -> int:
    return 0o100755 if mode & stat.S_IXUSR else 0o100644


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _temporary() -> str:
    return f".treadle-{uuid7()}"
