"""Files: read, write, list, copy, remove, watch."""

from __future__ import annotations

from treadle.protocol.base import AbsolutePathBuf, Int64, Params, Value


class FsChangedNotification(Value, frozen=True):
    """Something changed at or under a watched path."""

    changed_paths: list[AbsolutePathBuf]
    watch_id: str


class FsCopyParams(Params, frozen=True):
    """Copy a file, or with `recursive` a folder; devices and sockets are passed over."""

    destination_path: AbsolutePathBuf
    source_path: AbsolutePathBuf
    # Needed for a folder, ignored for a file.
    recursive: bool = False


class FsCopyResponse(Value, frozen=True):
    """The copy is complete."""


class FsCreateDirectoryParams(Params, frozen=True):
    """Make a folder."""

    path: AbsolutePathBuf
    # True by default: parents are made as well.
    recursive: bool | None = None


class FsCreateDirectoryResponse(Value, frozen=True):
    """The folder is there."""


class FsGetMetadataParams(Params, frozen=True):
    """Ask what there is at a path."""

    path: AbsolutePathBuf


class FsGetMetadataResponse(Value, frozen=True):
    """What a path leads to, and when it was made and changed."""

    # 0 where the platform does not tell, as for modified_at_ms.
    created_at_ms: Int64
    # Symbolic links are followed for this and is_file, never for is_symlink.
    is_directory: bool
    is_file: bool
    is_symlink: bool
    modified_at_ms: Int64


class FsReadDirectoryEntry(Value, frozen=True):
    """One child of a folder, by its bare name."""

    file_name: str
    is_directory: bool
    is_file: bool


class FsReadDirectoryParams(Params, frozen=True):
    """List the children of a folder, not theirs in turn."""

    path: AbsolutePathBuf


class FsReadDirectoryResponse(Value, frozen=True):
    """The children of the folder."""

    entries: list[FsReadDirectoryEntry]


class FsReadFileParams(Params, frozen=True):
    """Fetch a whole file."""

    path: AbsolutePathBuf


class FsReadFileResponse(Value, frozen=True):
    """The bytes of the file, in base64."""

    data_base64: str


class FsRemoveParams(Params, frozen=True):
    """Delete a file or a folder; by default with all it holds, and in silence if missing."""

    path: AbsolutePathBuf
    # True by default: a missing path is no error.
    force: bool | None = None
    # True by default.
    recursive: bool | None = None


class FsRemoveResponse(Value, frozen=True):
    """There is nothing at the path any more."""


class FsUnwatchParams(Params, frozen=True):
    """End a watch."""

    watch_id: str


class FsUnwatchResponse(Value, frozen=True):
    """No further `fs/changed` comes from the watch."""


class FsWatchParams(Params, frozen=True):
    """Have `fs/changed` sent to this connection whenever a file or folder changes."""

    path: AbsolutePathBuf
    # Unique to the connection; older clients leave it out and the reply names one.
    watch_id: str | None = None


class FsWatchResponse(Value, frozen=True):
    """The watch is on, at the path that symbolic links resolve to."""

    path: AbsolutePathBuf
    watch_id: str | None = None


class FsWriteFileParams(Params, frozen=True):
    """Create a file or replace all it holds."""

    data_base64: str
    path: AbsolutePathBuf


class FsWriteFileResponse(Value, frozen=True):
    """The bytes are written."""
