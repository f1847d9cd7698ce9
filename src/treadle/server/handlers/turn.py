"""Turns: starting, steering, adjusting, interrupting."""

from __future__ import annotations

from functools import partial

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.conversation.input import read_files
from treadle.engine.events.intake import input_stored
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    TURN_INTERRUPT,
    TURN_SETTINGS_UPDATE,
    TURN_START,
    TURN_STEER,
)
from treadle.protocol.turn import (
    TurnInterruptParams,
    TurnInterruptResponse,
    TurnSettingsUpdateParams,
    TurnSettingsUpdateResponse,
    TurnStartParams,
    TurnStartResponse,
    TurnSteerParams,
    TurnSteerResponse,
)
from treadle.server.query_limits import MAX_PARTS, check_count, check_texts
from treadle.server.session import ClientSession
from treadle.server.thread_settings import check_turn, turn_profile

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(TURN_START)
async def turn_start(ctx: Context[ClientSession], params: TurnStartParams) -> TurnStartResponse:
    """Start a turn, which runs after the client has received its id."""
    check_count(params.input, "input", MAX_PARTS)
    thread = ctx.session.server.threads.get(params.thread_id)
    configuration = ctx.session.server.configuration
    check_turn(configuration, params)
    profile = turn_profile(configuration, params, thread.settings.cwd)
    workers = ctx.session.server.threads.services.file_workers
    sandbox = profile.sandbox if profile else params.sandbox_policy
    readable = partial(thread.context.readable, params.cwd, sandbox)
    files = await read_files(params.input, workers, readable)
    accepted = thread.begin_turn(params, profile, files=files)
    await input_stored(thread, accepted)
    ctx.after_reply(accepted.start)
    return TurnStartResponse(accepted.snapshot)


@router.request(TURN_STEER)
async def turn_steer(ctx: Context[ClientSession], params: TurnSteerParams) -> TurnSteerResponse:
    """Add input to the active turn."""
    check_count(params.input, "input", MAX_PARTS)
    check_texts(params)
    thread = ctx.session.server.threads.get(params.thread_id)
    workers = ctx.session.server.threads.services.file_workers
    files = await read_files(params.input, workers, thread.context.readable)
    turn_id = thread.steer(params, files=files)
    await input_stored(thread)
    return TurnSteerResponse(turn_id)


@router.request(TURN_SETTINGS_UPDATE)
def turn_settings_update(
    ctx: Context[ClientSession], params: TurnSettingsUpdateParams
) -> TurnSettingsUpdateResponse:
    """Change the settings of the active turn only."""
    check_texts(params)
    thread = ctx.session.server.threads.get(params.thread_id)
    is_applied = thread.adjust_turn(params)
    return TurnSettingsUpdateResponse("applied" if is_applied else "targetUnavailable")


@router.request(TURN_INTERRUPT)
def turn_interrupt(
    ctx: Context[ClientSession], params: TurnInterruptParams
) -> TurnInterruptResponse:
    """Interrupt the active turn."""
    thread = ctx.session.server.threads.get(params.thread_id)
    ctx.after_reply(thread.active_turn("interrupt", params.turn_id).stop)
    return TurnInterruptResponse()
