"""Hooks: which are configured, and whether they run."""

from __future__ import annotations

from treadle.config.file import ConfigError
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.protocol.client_requests import CLIENT_REQUESTS, HOOKS_LIST
from treadle.protocol.hook import HookErrorInfo, HooksListEntry, HooksListParams, HooksListResponse
from treadle.server.folder_limits import check_folders
from treadle.server.session import ClientSession
from treadle.server.sources.hooks import ConfiguredHooks
from treadle.support.files.working_folder import working_folder

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(HOOKS_LIST)
async def hooks_list(ctx: Context[ClientSession], params: HooksListParams) -> HooksListResponse:
    """List the hooks of some folders, or of a loaded thread."""
    server = ctx.session.server
    places = [(folder, None) for folder in params.cwds or [working_folder()]]
    if params.thread_id is not None:
        if params.cwds:
            raise InvalidInput("threadId", "threadId cannot be combined with cwds")
        settings = server.threads.get(params.thread_id).settings
        places = [(settings.cwd, settings.config)]
    check_folders(params.cwds)
    workers = ctx.session.file_workers
    hooks = ConfiguredHooks(server.configuration, lambda: server.active_plugins)
    data = [await workers.run(_entry, hooks, *place) for place in places]
    return HooksListResponse(data=data)


def _entry(hooks: ConfiguredHooks, cwd: str, request: object) -> HooksListEntry:
    from treadle.server.hook_metadata import metadata_of

    try:
        found = hooks.find(cwd, request)
    except ConfigError as error:
        path = str(error.file or hooks.user_file)
        fault = HookErrorInfo(message=str(error), path=path)
        return HooksListEntry(cwd=cwd, errors=[fault], hooks=[], warnings=[])
    return HooksListEntry(
        cwd=cwd,
        errors=list(found.errors),
        hooks=[metadata_of(hook) for hook in found.hooks],
        warnings=list(found.warnings),
    )
