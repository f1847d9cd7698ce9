"""The client's methods for the server's files and configuration."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from treadle.protocol.base import JsonValue
from treadle.protocol.client_requests import CONFIG_BATCH_WRITE, FS_READ_FILE, FS_WRITE_FILE
from treadle.protocol.config import (
    ConfigBatchWriteParams,
    ConfigEdit,
    ConfigWriteResponse,
    MergeStrategy,
)
from treadle.protocol.fs import FsReadFileParams, FsWriteFileParams

if TYPE_CHECKING:
    from treadle.client._runtime.runtime import ClientRuntime

AnyPath: TypeAlias = str | PathLike[str]
"""A path on the server's machine; a relative path is resolved against the client's `cwd`."""


class AsyncFiles:
    """File and configuration methods of the client."""

    _core: ClientRuntime
    _cwd: str | None

    async def read_file(self, path: AnyPath) -> bytes:
        """Return the contents of a file."""
        params = FsReadFileParams(path=self._absolute(path))
        return base64.b64decode((await self._core.request(FS_READ_FILE, params)).data_base64)

    async def read_text(self, path: AnyPath, *, encoding: str = "utf-8") -> str:
        """Return the contents of a text file."""
        return (await self.read_file(path)).decode(encoding)

    async def write_file(self, path: AnyPath, data: bytes | str) -> None:
        """Create or overwrite a file; text is encoded as UTF-8."""
        raw = data.encode() if isinstance(data, str) else data
        params = FsWriteFileParams(
            data_base64=base64.b64encode(raw).decode(), path=self._absolute(path)
        )
        await self._core.request(FS_WRITE_FILE, params)

    async def write_config(
        self,
        values: Mapping[str, JsonValue],
        *,
        merge_strategy: MergeStrategy = "replace",
        expected_version: str | None = None,
        file_path: AnyPath | None = None,
        reload_user_config: bool = False,
    ) -> ConfigWriteResponse:
        """Set keys such as `model` or `tools.web_search` in the user's configuration, all or none.

        `None` removes a key.
        """
        params = ConfigBatchWriteParams(
            edits=[ConfigEdit(key, merge_strategy, value) for key, value in values.items()],
            expected_version=expected_version,
            file_path=None if file_path is None else self._absolute(file_path),
            reload_user_config=reload_user_config,
        )
        return await self._core.request(CONFIG_BATCH_WRITE, params)

    def _absolute(self, path: AnyPath) -> str:
        return str(path) if self._cwd is None else str(Path(self._cwd, path))
