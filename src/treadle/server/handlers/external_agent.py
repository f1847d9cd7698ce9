"""Import of what users have configured for other agents."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from treadle.config.configuration import Configuration
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.jsonrpc.errors import InternalError, InvalidRequest
from treadle.protocol.base import NoParams
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    EXTERNAL_AGENT_CONFIG_DETECT,
    EXTERNAL_AGENT_CONFIG_IMPORT,
    EXTERNAL_AGENT_CONFIG_IMPORT_READ_HISTORIES,
    EXTERNAL_AGENT_CONFIG_IMPORT_RECORD_HISTORY,
)
from treadle.protocol.error import ConfigWarningNotification
from treadle.protocol.external_agent import (
    ExternalAgentConfigDetectParams,
    ExternalAgentConfigDetectResponse,
    ExternalAgentConfigImportCompletedNotification,
    ExternalAgentConfigImportHistoriesReadResponse,
    ExternalAgentConfigImportHistory,
    ExternalAgentConfigImportHistoryRecordParams,
    ExternalAgentConfigImportHistoryRecordResponse,
    ExternalAgentConfigImportItemTypeSuccess,
    ExternalAgentConfigImportParams,
    ExternalAgentConfigImportProgressNotification,
    ExternalAgentConfigImportResponse,
    ExternalAgentConfigImportTypeResult,
    ExternalAgentConfigMigrationItem,
)
from treadle.protocol.notifications import (
    CONFIG_WARNING,
    EXTERNAL_AGENT_CONFIG_IMPORT_COMPLETED,
    EXTERNAL_AGENT_CONFIG_IMPORT_PROGRESS,
)
from treadle.server.migration import history
from treadle.server.migration.importing import detect, import_item, places
from treadle.server.migration.places import AgentName, Place, UnreadableSource
from treadle.server.query_limits import check_count
from treadle.server.session import ClientSession
from treadle.support.ids import uuid7

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_FOLDERS: Final = 100
MAX_ITEMS: Final = 500
MAX_ITEMS_BYTES: Final = 4 * 1024 * 1024
MAX_IMPORTS: Final = 4
"""The maximum number of imports of one client at a time: they continue after the answer."""

logger = logging.getLogger(__name__)


@router.request(EXTERNAL_AGENT_CONFIG_DETECT)
async def external_agent_config_detect(
    ctx: Context[ClientSession], params: ExternalAgentConfigDetectParams
) -> ExternalAgentConfigDetectResponse:
    """Return what can be imported; the client is warned of files that cannot be read."""
    session = ctx.session
    configuration = session.server.configuration
    cwds = params.cwds or []
    _check_folders(cwds, "cwds")
    agent = _agent(params.migration_source)

    def find() -> list[ExternalAgentConfigMigrationItem | UnreadableSource]:
        found = places(
            configuration,
            agent,
            includes_home=params.include_home,
            cwds=cwds,
            home_of_user=_home_of_user(configuration),
        )
        return [each for place in found for each in detect(configuration, place)]

    items: list[ExternalAgentConfigMigrationItem] = []
    for each in await session.file_workers.run(find):
        if isinstance(each, UnreadableSource):
            warning = ConfigWarningNotification(f"not imported: {each}")
            ctx.after_reply(partial(session.notify_nowait, CONFIG_WARNING, warning))
        else:
            items.append(each)
    return ExternalAgentConfigDetectResponse(items)


@router.request(EXTERNAL_AGENT_CONFIG_IMPORT)
def external_agent_config_import(
    ctx: Context[ClientSession], params: ExternalAgentConfigImportParams
) -> ExternalAgentConfigImportResponse:
    """Start an import; it continues when the client leaves."""
    session = ctx.session
    check_count(params.migration_items, "migrationItems", MAX_ITEMS)
    if len(session.imports) >= MAX_IMPORTS:
        raise InvalidRequest(f"a client may have {MAX_IMPORTS} imports", kind="unsupported")
    if len(msgspec.json.encode(params.migration_items)) > MAX_ITEMS_BYTES:
        reason = f"migrationItems must have at most {MAX_ITEMS_BYTES} bytes"
        raise InvalidInput("migrationItems", reason)
    folders = [each.cwd for each in params.migration_items if each.cwd is not None]
    _check_folders(dict.fromkeys(folders), "migrationItems.cwd")
    import_id = uuid7()
    tasks = session.server.threads.services.tasks

    def start() -> None:
        task = tasks.spawn(_import(session, import_id, params), f"import {import_id}")
        task.add_done_callback(lambda _task: session.imports.discard(import_id))

    session.imports.add(import_id)
    ctx.after_reply(start)
    return ExternalAgentConfigImportResponse(import_id)


@router.request(EXTERNAL_AGENT_CONFIG_IMPORT_READ_HISTORIES)
async def external_agent_config_import_read_histories(
    ctx: Context[ClientSession], _params: NoParams
) -> ExternalAgentConfigImportHistoriesReadResponse:
    """Return the imports of the past, the latest first."""
    home = ctx.session.server.configuration.home
    try:
        found = await ctx.session.file_workers.run(history.read, home)
    except OSError as error:
        raise InternalError(f"failed to read imports: {error}") from error
    return ExternalAgentConfigImportHistoriesReadResponse([], list(found))


@router.request(EXTERNAL_AGENT_CONFIG_IMPORT_RECORD_HISTORY)
async def external_agent_config_import_record_history(
    ctx: Context[ClientSession], params: ExternalAgentConfigImportHistoryRecordParams
) -> ExternalAgentConfigImportHistoryRecordResponse:
    """Add an import that the client made itself."""
    check_count(params.item_type_results, "itemTypeResults", MAX_ITEMS)
    if len(msgspec.json.encode(params.item_type_results)) > history.MAX_ENTRY_BYTES:
        reason = f"itemTypeResults must have at most {history.MAX_ENTRY_BYTES} bytes"
        raise InvalidInput("itemTypeResults", reason)
    import_id = uuid7()
    results = [
        ExternalAgentConfigImportTypeResult(
            each.failures,
            each.item_type,
            [
                ExternalAgentConfigImportItemTypeSuccess(
                    item.item_type, item.cwd, item.source, item.target, item.title
                )
                for item in each.successes
            ],
        )
        for each in params.item_type_results
    ]
    await _record(ctx.session, import_id, params.provider_id, results)
    return ExternalAgentConfigImportHistoryRecordResponse(import_id)


async def _import(
    session: ClientSession, import_id: str, params: ExternalAgentConfigImportParams
) -> None:
    """Import the items one after the other, and publish the result of each."""
    results: dict[str, ExternalAgentConfigImportTypeResult] = {}
    agent = _agent(params.migration_source)
    for item in params.migration_items:
        result = await session.server.settings_workers.run(_apply, session, agent, item)
        known = results.setdefault(
            item.item_type, ExternalAgentConfigImportTypeResult([], item.item_type, [])
        )
        known.failures.extend(result.failures)
        known.successes.extend(result.successes)
        progress = ExternalAgentConfigImportProgressNotification(import_id, [result])
        session.notify_nowait(EXTERNAL_AGENT_CONFIG_IMPORT_PROGRESS, progress)
    try:
        await _record(session, import_id, params.provider_id, list(results.values()))
    except InternalError as error:
        logger.warning("import not recorded", extra={"import": import_id, "reason": str(error)})
    session.imports.discard(import_id)
    session.server.publish_skills_changed()
    completed = ExternalAgentConfigImportCompletedNotification(import_id, list(results.values()))
    session.notify_nowait(EXTERNAL_AGENT_CONFIG_IMPORT_COMPLETED, completed)


def _apply(
    session: ClientSession, agent: AgentName, item: ExternalAgentConfigMigrationItem
) -> ExternalAgentConfigImportTypeResult:
    configuration = session.server.configuration
    found: list[Place] = places(
        configuration,
        agent,
        includes_home=item.cwd is None,
        cwds=[] if item.cwd is None else [item.cwd],
        home_of_user=_home_of_user(configuration),
    )
    if not found:
        return ExternalAgentConfigImportTypeResult([], item.item_type, [])
    return import_item(configuration, found[0], item)


async def _record(
    session: ClientSession,
    import_id: str,
    provider_id: str | None,
    results: Sequence[ExternalAgentConfigImportTypeResult],
) -> None:
    entry = ExternalAgentConfigImportHistory(
        session.server.threads.services.clock(),
        [failure for each in results for failure in each.failures],
        import_id,
        [success for each in results for success in each.successes],
        provider_id,
    )
    try:
        home = session.server.configuration.home
        await session.server.settings_workers.run(history.add, home, entry)
    except OSError as error:
        raise InternalError(f"failed to record the import: {error}") from error


def _agent(source: str | None) -> AgentName:
    """Return the agent of a request; upstream reads Claude Code unless it is named Cursor."""
    return "cursor" if source == "cursor" else "claude"


def _check_folders(cwds: Sequence[str] | dict[str, None], field: str) -> None:
    check_count(list(cwds), field, MAX_FOLDERS)
    for cwd in cwds:
        if not Path(cwd).is_absolute() or "\0" in cwd:
            raise InvalidInput(field, f"{field}: path must be absolute: {cwd!r}")


def _home_of_user(configuration: Configuration) -> Path:
    # Without a variable the system's answer; Path.home raises without a user.
    return Path(configuration.environ.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111
