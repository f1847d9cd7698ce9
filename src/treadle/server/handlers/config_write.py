"""Writes to the configuration; all of them change the user's file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.config.edit.toml_text import Unfaithful
from treadle.config.edit.writer import WriteRefused, write_config
from treadle.config.file import ConfigError
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InternalError, InvalidRequest
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    CONFIG_BATCH_WRITE,
    CONFIG_VALUE_WRITE,
)
from treadle.protocol.config import (
    ConfigBatchWriteParams,
    ConfigEdit,
    ConfigValueWriteParams,
    ConfigWriteResponse,
)
from treadle.server.session import ClientSession
from treadle.server.settings_reload import reload_threads
from treadle.store.journal import StorageFailed

if TYPE_CHECKING:
    from treadle.server.server import Server

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(CONFIG_VALUE_WRITE)
async def config_value_write(
    ctx: Context[ClientSession], params: ConfigValueWriteParams
) -> ConfigWriteResponse:
    """Set one key of the user's file, or remove it."""
    edit = ConfigEdit(params.key_path, params.merge_strategy, params.value)
    return await _write(ctx, [edit], params)


@router.request(CONFIG_BATCH_WRITE)
async def config_batch_write(
    ctx: Context[ClientSession], params: ConfigBatchWriteParams
) -> ConfigWriteResponse:
    """Make several changes to the user's file, all or none."""
    written = await _write(ctx, params.edits, params)
    if params.reload_user_config:
        await _reload(ctx.session.server)
    return written


async def _write(
    ctx: Context[ClientSession],
    edits: Sequence[ConfigEdit],
    params: ConfigValueWriteParams | ConfigBatchWriteParams,
) -> ConfigWriteResponse:
    home = ctx.session.server.configuration.home
    folder = Path(params.file_path).parent if params.file_path else home
    with answering_faults(folder):
        # Off the loop: another program may be writing, and disks can be slow.
        return await ctx.session.server.settings_workers.run(
            write_config,
            ctx.session.server.configuration,
            edits,
            file_path=params.file_path,
            expected_version=params.expected_version,
        )


@contextmanager
def answering_faults(folder: Path) -> Iterator[None]:
    """Translate the errors of a write to a folder into answers."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(str(folder), error) from error
    except WriteRefused as error:
        # Upstream's name for the kind, beside Treadle's own.
        raise InvalidRequest(
            str(error), kind=error.code, config_write_error_code=error.code, path=error.key
        ) from error
    except ConfigError as error:
        message = f"failed to load configuration: {error}"
        raise InternalError(message, kind="invalidConfig", path=error.key) from error
    except Unfaithful as error:
        message = f"cannot edit the file without changing its other content: {error}"
        raise InternalError(message, kind="invalidConfig") from error


async def _reload(server: Server) -> None:
    """Apply the configuration to loaded threads, and restart their changed MCP servers."""
    await reload_threads(server)
    for thread_id in server.threads.loaded_ids():
        server.threads.get(thread_id).mcp.reload()
