"""Files: read, write, list, copy, remove, watch."""

from __future__ import annotations

from treadle.protocol.base import AbsolutePathBuf, Int64, Params, Value


class FsChangedNotification(Value, frozen=True):
    """Something changed at or under a watched path."""

    changed_paths: list[AbsolutePathBuf]
    watch_id: str


class FsCopyParams(Params, frozen=True):
    """Copy a file, or with `recursive` a folder; devices and sockets are skipped."""

    destination_path: AbsolutePathBuf
    source_path: AbsolutePathBuf
    # Required for a folder, ignored for a file.
    recursive: bool = False


class FsCopyResponse(Value, frozen=True):
    """The copy is complete."""


class FsCreateDirectoryParams(Params, frozen=True):
    """Create a folder."""

    path: AbsolutePathBuf
    # True by default: parents are created as well.
    recursive: bool | None = None


class FsCreateDirectoryResponse(Value, frozen=True):
    """The folder exists."""


class FsGetMetadataParams(Params, frozen=True):
    """Read the metadata of a path."""

    path: AbsolutePathBuf


class FsGetMetadataResponse(Value, frozen=True):
    """The type of a path, and when it was created and modified."""

    # 0 if the platform does not report it; the same holds for modified_at_ms.
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
    """List the children of a folder, not recursively."""

    path: AbsolutePathBuf


class FsReadDirectoryResponse(Value, frozen=True):
    """The children of the folder."""

    entries: list[FsReadDirectoryEntry]


class FsReadFileParams(Params, frozen=True):
    """Read a whole file."""

    path: AbsolutePathBuf


class FsReadFileResponse(Value, frozen=True):
    """The bytes of the file, in base64."""

    data_base64: str


class FsRemoveParams(Params, frozen=True):
    """Remove a file or a folder; by default recursively, and without error if missing."""

    path: AbsolutePathBuf
    # True by default: a missing path is not an error.
    force: bool | None = None
    # True by default.
    recursive: bool | None = None


class FsRemoveResponse(Value, frozen=True):
    """The path no longer exists."""


class FsUnwatchParams(Params, frozen=True):
    """End a watch."""

    watch_id: str


class FsUnwatchResponse(Value, frozen=True):
    """The watch sends no further `fs/changed`."""


class FsWatchParams(Params, frozen=True):
    """Send `fs/changed` to this connection whenever a file or folder changes."""

    path: AbsolutePathBuf
    # Unique per connection; older clients omit it, and the response contains one.
    watch_id: str | None = None


class FsWatchResponse(Value, frozen=True):
    """The watch is active on the path with symbolic links resolved."""

    path: AbsolutePathBuf
    watch_id: str | None = None


class FsWriteFileParams(Params, frozen=True):
    """Create a file or replace its content."""

    data_base64: str
    path: AbsolutePathBuf


class FsWriteFileResponse(Value, frozen=True):
    """The bytes are written."""
