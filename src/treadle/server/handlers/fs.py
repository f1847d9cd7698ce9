"""Files and folders of the machine, for clients without other access to them.

Not confined: a client has the rights of the server's user. All work is done in worker threads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final, ParamSpec, TypeVar, cast

from msgspec import Raw

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InternalError, InvalidParams, InvalidRequest
from treadle.jsonrpc.framing import MAX_MESSAGE_BYTES
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    FS_COPY,
    FS_CREATE_DIRECTORY,
    FS_GET_METADATA,
    FS_READ_DIRECTORY,
    FS_READ_FILE,
    FS_REMOVE,
    FS_UNWATCH,
    FS_WATCH,
    FS_WRITE_FILE,
)
from treadle.protocol.fs import (
    FsChangedNotification,
    FsCopyParams,
    FsCopyResponse,
    FsCreateDirectoryParams,
    FsCreateDirectoryResponse,
    FsGetMetadataParams,
    FsGetMetadataResponse,
    FsReadDirectoryParams,
    FsReadDirectoryResponse,
    FsReadFileParams,
    FsReadFileResponse,
    FsRemoveParams,
    FsRemoveResponse,
    FsUnwatchParams,
    FsUnwatchResponse,
    FsWatchParams,
    FsWatchResponse,
    FsWriteFileParams,
    FsWriteFileResponse,
)
from treadle.protocol.notifications import FS_CHANGED
from treadle.server.files import service as files
from treadle.server.files.base64_text import BadBase64, decode_base64
from treadle.server.files.shared_path import PathWatch, follow
from treadle.server.folder_limits import check_folder
from treadle.server.query_limits import check_term
from treadle.server.session import ClientSession
from treadle.support.ids import uuid7
from treadle.support.text.base64_chunks import encode_base64

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

P = ParamSpec("P")
R = TypeVar("R")

# Leaves room for the envelope of the response.
MAX_READ_BYTES: Final = MAX_MESSAGE_BYTES // 4 * 3 - 16 * 1024
MAX_WATCHES: Final = 256
"""Maximum number of watches of one client."""


@router.request(FS_READ_FILE)
async def fs_read_file(ctx: Context[ClientSession], params: FsReadFileParams) -> FsReadFileResponse:
    """Return the content of a file."""
    return await _run(ctx, _read, _absolute(params.path))


@router.request(FS_WRITE_FILE)
async def fs_write_file(
    ctx: Context[ClientSession], params: FsWriteFileParams
) -> FsWriteFileResponse:
    """Create a file or replace its content."""
    await _run(ctx, _write, _absolute(params.path), params.data_base64)
    return FsWriteFileResponse()


@router.request(FS_CREATE_DIRECTORY)
async def fs_create_directory(
    ctx: Context[ClientSession], params: FsCreateDirectoryParams
) -> FsCreateDirectoryResponse:
    """Create a folder."""
    path = _absolute(params.path)
    await _run(ctx, files.make_folder, path, with_parents=params.recursive is not False)
    return FsCreateDirectoryResponse()


@router.request(FS_GET_METADATA)
async def fs_get_metadata(
    ctx: Context[ClientSession], params: FsGetMetadataParams
) -> FsGetMetadataResponse:
    """Return the metadata of a path."""
    return await _run(ctx, files.describe, _absolute(params.path))


@router.request(FS_READ_DIRECTORY)
async def fs_read_directory(
    ctx: Context[ClientSession], params: FsReadDirectoryParams
) -> FsReadDirectoryResponse:
    """List the entries of a folder."""
    return FsReadDirectoryResponse(await _run(ctx, files.children, _absolute(params.path)))


@router.request(FS_REMOVE)
async def fs_remove(ctx: Context[ClientSession], params: FsRemoveParams) -> FsRemoveResponse:
    """Delete a file or a folder."""
    recursive, force = params.recursive is not False, params.force is not False
    await _run(ctx, files.remove, _absolute(params.path), recursive=recursive, force=force)
    return FsRemoveResponse()


@router.request(FS_COPY)
async def fs_copy(ctx: Context[ClientSession], params: FsCopyParams) -> FsCopyResponse:
    """Copy a file or a folder; stop when the client disconnects."""
    source = _absolute(params.source_path, "sourcePath")
    destination = _absolute(params.destination_path, "destinationPath")
    stop = Event()
    try:
        await _run(ctx, files.copy, source, destination, stop, recursive=params.recursive)
    finally:
        stop.set()
    return FsCopyResponse()


@router.request(FS_WATCH)
async def fs_watch(ctx: Context[ClientSession], params: FsWatchParams) -> FsWatchResponse:
    """Notify the client of changes until it disconnects."""
    # After each change, a watch examines all folders on its path again.
    check_folder(params.path, "path")
    path = str(_absolute(params.path))
    session = ctx.session
    # The path is watched unresolved: a link on it may later point elsewhere.
    shown = await session.file_workers.run(_canonical, Path(path))
    watch_id = uuid7() if params.watch_id is None else check_term(params.watch_id, "watchId")
    if watch_id in session.watches:
        raise InvalidRequest(f"watchId already exists: {watch_id}", kind="watchExists")
    if len(session.watches) >= MAX_WATCHES:
        message = f"too many watches: a client may have at most {MAX_WATCHES}"
        raise InvalidRequest(message, kind="tooManyWatches", limit=MAX_WATCHES)
    session.watches[watch_id] = None
    try:
        watch = await session.server.watcher.watch(path)
    except BaseException as error:
        del session.watches[watch_id]
        if isinstance(error, OSError):
            raise _io_error(error) from error
        raise
    # Start after the reply: the client must know of the watch before its first change.
    ctx.after_reply(lambda: _follow(ctx, watch_id, watch, partial(_respelled, Path(path), shown)))
    return FsWatchResponse(str(shown), watch_id)


@router.request(FS_UNWATCH)
def fs_unwatch(ctx: Context[ClientSession], params: FsUnwatchParams) -> FsUnwatchResponse:
    """End a watch; an unknown watch has already ended."""
    task = ctx.session.watches.pop(params.watch_id, None)
    if task is not None:
        task.cancel()
    return FsUnwatchResponse()


def _canonical(path: Path) -> Path:
    """Return a path without links, up to its last part if that does not exist yet."""
    return path.resolve() if path.exists() else path.parent.resolve() / path.name


def _respelled(watched: Path, shown: Path, path: str) -> str:
    """Return a changed path in the spelling that the client was given."""
    return str(shown / Path(path).relative_to(watched)) if watched != shown else path


def _follow(
    ctx: Context[ClientSession], watch_id: str, watch: PathWatch, spell: Callable[[str], str]
) -> None:
    session = ctx.session

    async def notify(changed: list[str]) -> None:
        paths = [spell(path) for path in changed]
        await session.notify(FS_CHANGED, FsChangedNotification(paths, watch_id))

    task = ctx.connection.spawn(follow(watch, notify), f"watch {watch_id}")
    if task is None:
        del session.watches[watch_id]
        watch.end()
        return
    session.watches[watch_id] = task
    task.add_done_callback(lambda _: watch.end())


def _read(path: Path) -> FsReadFileResponse:
    """Read a file into an answer whose content is already JSON.

    Encoding it with the answer would scan every character on the event loop.
    """
    text = Raw(f'"{encode_base64(files.read(path, MAX_READ_BYTES))}"'.encode("ascii"))
    return FsReadFileResponse(cast("str", text))


def _write(path: Path, data_base64: str) -> None:
    try:
        data = decode_base64(data_base64)
    except BadBase64 as error:
        message = f"fs/writeFile requires valid base64 dataBase64: {error}"
        raise InvalidRequest(message, kind="invalidParams", path="dataBase64") from error
    files.write(path, data)


def _absolute(path: str, field: str = "path") -> Path:
    """Return a normalized path: `..` removes a name, even if that name is a link."""
    if "\0" in path:
        message = "file name contained an unexpected NUL byte"
        raise InvalidParams(message, path=field)
    if not path.startswith("/"):
        message = f"Invalid request: {field} must be an absolute path, not {path!r}"
        raise InvalidParams(message, path=field)
    return Path(os.path.normpath(f"/{path.lstrip('/')}"))


async def _run(
    ctx: Context[ClientSession], work: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """Run work in a thread, and report errors with the texts that clients rely on."""
    try:
        return await ctx.session.file_workers.run(work, *args, **kwargs)
    except files.FileTooLargeToSend as error:
        raise InvalidRequest(str(error), kind="fileTooLarge", limit=error.limit) from error
    except files.FolderTooLarge as error:
        raise InvalidRequest(str(error), kind="directoryTooLarge", limit=error.limit) from error
    except files.FileRefused as error:
        raise InvalidRequest(str(error)) from error
    except OSError as error:
        raise _io_error(error) from error


def _io_error(error: OSError) -> InternalError:
    code = error.errno
    if code is None:
        return InternalError(str(error), kind="io")
    name = errno.errorcode.get(code, str(code))
    return InternalError(f"{os.strerror(code)} (os error {code})", kind="io", errno=name)
