"""Realtime conversations of threads."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.jsonrpc.errors import InvalidRequest
from treadle.model.base import ModelError
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    THREAD_REALTIME_APPEND_AUDIO,
    THREAD_REALTIME_APPEND_SPEECH,
    THREAD_REALTIME_APPEND_TEXT,
    THREAD_REALTIME_LIST_VOICES,
    THREAD_REALTIME_START,
    THREAD_REALTIME_STOP,
)
from treadle.protocol.notifications import THREAD_REALTIME_CLOSED
from treadle.protocol.realtime import (
    ThreadRealtimeAppendAudioParams,
    ThreadRealtimeAppendAudioResponse,
    ThreadRealtimeAppendSpeechParams,
    ThreadRealtimeAppendSpeechResponse,
    ThreadRealtimeAppendTextParams,
    ThreadRealtimeAppendTextResponse,
    ThreadRealtimeClosedNotification,
    ThreadRealtimeListVoicesParams,
    ThreadRealtimeListVoicesResponse,
    ThreadRealtimeStartParams,
    ThreadRealtimeStartResponse,
    ThreadRealtimeStopParams,
    ThreadRealtimeStopResponse,
)
from treadle.server.realtime.delegation import NotRunning
from treadle.server.realtime.service_events import RATE
from treadle.server.realtime.voices import VOICES
from treadle.server.session import ClientSession

if TYPE_CHECKING:
    from treadle.server.realtime.session import RealtimeSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_TEXT: Final = 64 * 1024
MAX_NAME: Final = 4096
MAX_AUDIO: Final = 1024 * 1024
"""The maximum length of a chunk of audio, in base64: about 16 seconds."""


@router.request(THREAD_REALTIME_START)
async def thread_realtime_start(
    ctx: Context[ClientSession], params: ThreadRealtimeStartParams
) -> ThreadRealtimeStartResponse:
    """Start a conversation; it replaces the one that the thread has."""
    server = ctx.session.server
    thread = server.threads.get(params.thread_id)
    for name in ("prompt", "realtime_start_instructions", "realtime_end_instructions"):
        _check_length(getattr(params, name) or "", name)
    for name in ("model", "realtime_session_id", "session_id"):
        _check_length(getattr(params, name) or "", name, MAX_NAME)
    try:
        start = await server.realtime.prepare(thread, params)
    except ModelError as error:
        raise InvalidRequest(str(error), kind="noRealtimeService") from error
    ctx.after_reply(start)
    return ThreadRealtimeStartResponse()


@router.request(THREAD_REALTIME_APPEND_AUDIO)
async def thread_realtime_append_audio(
    ctx: Context[ClientSession], params: ThreadRealtimeAppendAudioParams
) -> ThreadRealtimeAppendAudioResponse:
    """Send audio of the user to the model."""
    audio = params.audio
    if audio.sample_rate != RATE or audio.num_channels != 1:
        message = f"audio must have one channel with {RATE} samples per second"
        raise InvalidInput("audio", message)
    if len(audio.data) > MAX_AUDIO:
        raise InvalidInput("audio.data", f"data must have at most {MAX_AUDIO} characters")
    try:
        base64.b64decode(audio.data, validate=True)
    except binascii.Error as error:
        raise InvalidInput("audio.data", f"data must be base64: {error}") from error
    with _conversation(ctx, params.thread_id) as session:
        await session.append_audio(audio.data)
    return ThreadRealtimeAppendAudioResponse()


@router.request(THREAD_REALTIME_APPEND_TEXT)
async def thread_realtime_append_text(
    ctx: Context[ClientSession], params: ThreadRealtimeAppendTextParams
) -> ThreadRealtimeAppendTextResponse:
    """Send a text to the model."""
    _check_length(params.text, "text")
    with _conversation(ctx, params.thread_id) as session:
        await session.append_text(params.role, params.text)
    return ThreadRealtimeAppendTextResponse()


@router.request(THREAD_REALTIME_APPEND_SPEECH)
async def thread_realtime_append_speech(
    ctx: Context[ClientSession], params: ThreadRealtimeAppendSpeechParams
) -> ThreadRealtimeAppendSpeechResponse:
    """Let the model speak a text."""
    _check_length(params.text, "text")
    with _conversation(ctx, params.thread_id) as session:
        await session.append_speech(params.text)
    return ThreadRealtimeAppendSpeechResponse()


@router.request(THREAD_REALTIME_STOP)
async def thread_realtime_stop(
    ctx: Context[ClientSession], params: ThreadRealtimeStopParams
) -> ThreadRealtimeStopResponse:
    """End the conversation; without one, only the client is notified of its end, as upstream."""
    thread = ctx.session.server.threads.get(params.thread_id)
    try:
        await ctx.session.server.realtime.find(thread.id).stop()
    except NotRunning:
        closed = ThreadRealtimeClosedNotification(thread.id, "requested")
        ctx.after_reply(partial(ctx.session.notify_nowait, THREAD_REALTIME_CLOSED, closed))
    return ThreadRealtimeStopResponse()


@router.request(THREAD_REALTIME_LIST_VOICES)
def thread_realtime_list_voices(
    _ctx: Context[ClientSession], _params: ThreadRealtimeListVoicesParams
) -> ThreadRealtimeListVoicesResponse:
    """List the voices by version."""
    return ThreadRealtimeListVoicesResponse(VOICES)


@contextmanager
def _conversation(ctx: Context[ClientSession], thread_id: str) -> Iterator[RealtimeSession]:
    """Yield the conversation of a thread; one that ends meanwhile is refused like none."""
    server = ctx.session.server
    thread = server.threads.get(thread_id)
    try:
        yield server.realtime.find(thread.id)
    except NotRunning as error:
        # Upstream's text: its clients show it.
        message = "conversation is not running"
        raise InvalidRequest(message, kind="noRealtimeConversation") from error


def _check_length(text: object, field: str, limit: int = MAX_TEXT) -> None:
    if isinstance(text, str) and len(text) > limit:
        raise InvalidInput(field, f"{field} must have at most {limit} characters")
