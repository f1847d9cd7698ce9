"""`thread/settings/update`: changes the settings of later turns."""

from __future__ import annotations

from functools import partial

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.events.intake import keep_settings
from treadle.protocol.client_requests import CLIENT_REQUESTS, THREAD_SETTINGS_UPDATE
from treadle.protocol.settings import ThreadSettingsUpdateParams, ThreadSettingsUpdateResponse
from treadle.protocol.turn import TurnStartParams
from treadle.server.session import ClientSession
from treadle.server.thread_settings import check_turn, turn_profile

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(THREAD_SETTINGS_UPDATE)
def thread_settings_update(
    ctx: Context[ClientSession], params: ThreadSettingsUpdateParams
) -> ThreadSettingsUpdateResponse:
    """Change the settings without starting a turn."""
    thread = ctx.session.server.threads.get(params.thread_id)
    configuration = ctx.session.server.configuration
    check_turn(configuration, params)
    profile = turn_profile(configuration, params, thread.settings.cwd)
    overrides = TurnStartParams(
        input=[],
        thread_id=params.thread_id,
        approval_policy=params.approval_policy,
        approvals_reviewer=params.approvals_reviewer,
        collaboration_mode=params.collaboration_mode,
        cwd=params.cwd,
        disabled_plugin_ids=params.disabled_plugin_ids,
        effort=params.effort,
        model=params.model,
        personality=params.personality,
        sandbox_policy=params.sandbox_policy,
        service_tier=params.service_tier,
        summary=params.summary,
    )
    settings = thread.settings.overridden_by(overrides, profile)
    if settings.differs_from(thread.settings):
        keep_settings(thread, settings)
    ctx.after_reply(partial(thread.update_settings, settings))
    return ThreadSettingsUpdateResponse()
