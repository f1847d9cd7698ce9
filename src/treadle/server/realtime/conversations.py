"""The realtime conversations of a server: at most one for each thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from msgspec import UNSET

from treadle.config.configuration import Configuration
from treadle.config.effective import EffectiveConfig
from treadle.engine.errors import InvalidInput
from treadle.engine.thread import LoadedThread
from treadle.model.base import ModelError
from treadle.model.http.client import ProviderEndpoint
from treadle.model.provider import ProviderConfig, no_credentials
from treadle.protocol.realtime import ThreadRealtimeStartParams
from treadle.server.realtime.delegation import NotRunning
from treadle.server.realtime.service_events import Version
from treadle.server.realtime.session import (
    RealtimeOptions,
    RealtimeSession,
    ServiceAddress,
)
from treadle.server.realtime.startup_context import startup_context
from treadle.server.realtime.voices import default_voice, voices_of
from treadle.support.text.secrets import secrets_of_parameters, secrets_of_url

DEFAULT_MODEL: Final = "gpt-realtime-1.5"
_PROMPT: Final = (
    "You are the voice of a coding agent. Talk to the user briefly and naturally. For everything "
    "that concerns code, files or commands, hand the request to the agent with your tool, and sum "
    "up its reports. Never invent results."
)


class RealtimeConversations:
    """Starts conversations, and finds the one of a thread."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._sessions: dict[str, RealtimeSession] = {}
        # The threads whose end is noticed.
        self._followed: set[str] = set()

    def find(self, thread_id: str) -> RealtimeSession:
        """Return the conversation of a thread.

        Raises:
            NotRunning: there is none.
        """
        session = self._sessions.get(thread_id)
        if session is None:
            raise NotRunning
        return session

    async def prepare(
        self, thread: LoadedThread, params: ThreadRealtimeStartParams
    ) -> Callable[[], None]:
        """Check a request, and return what starts its conversation.

        Raises:
            InvalidInput: the request is invalid.
            ConfigError: the configuration is.
            ModelError: the provider of the thread has no realtime service, or no key for it.
        """
        settings = thread.settings
        # In a worker thread: files may have changed, and are parsed then.
        effective = await thread.services.file_workers.run(
            self._configuration.effective, settings.cwd, settings.config
        )
        options = _options(thread, params, effective)
        thread.context.check_room(options.notes, "realtimeStartInstructions")
        address = await self._address(thread, params, options.version, effective)
        session_id = params.realtime_session_id or params.session_id
        return partial(self._start, thread, options, address, session_id)

    def _start(
        self,
        thread: LoadedThread,
        options: RealtimeOptions,
        address: ServiceAddress,
        session_id: str | None,
    ) -> None:
        session = RealtimeSession(thread, options, session_id)
        before, self._sessions[thread.id] = self._sessions.get(thread.id), session
        if thread.id not in self._followed:
            self._followed.add(thread.id)
            thread.at_close(partial(self._forget, thread))
        name = f"realtime conversation of {thread.id}"
        thread.services.tasks.spawn(self._run(thread, session, before, address), name)

    async def _run(
        self,
        thread: LoadedThread,
        session: RealtimeSession,
        before: RealtimeSession | None,
        address: ServiceAddress,
    ) -> None:
        if before is not None:
            await before.stop()
        try:
            await session.run(address)
        finally:
            if self._sessions.get(thread.id) is session:
                del self._sessions[thread.id]

    def _forget(self, thread: LoadedThread) -> None:
        self._followed.discard(thread.id)
        session = self._sessions.get(thread.id)
        if session is not None and not thread.services.tasks.is_closed:
            thread.services.tasks.spawn(session.stop(), f"end of {thread.id}")

    async def _address(
        self,
        thread: LoadedThread,
        params: ThreadRealtimeStartParams,
        version: Version,
        effective: EffectiveConfig,
    ) -> ServiceAddress:
        provider_id = thread.settings.model_provider
        provider = effective.providers.get(provider_id)
        if provider is None or provider.wire_api != "responses" or not provider.base_url:
            message = f"model provider `{provider_id}` has no realtime service"
            raise ModelError(message, info="badRequest")
        login = self._configuration.credentials.login
        endpoint = ProviderEndpoint(
            provider_id,
            provider,
            environ=self._configuration.environ,
            credentials=login if provider.requires_openai_auth else no_credentials,
        )
        headers = await endpoint.headers()
        headers.pop("accept-encoding", None)
        headers["x-session-id"] = params.realtime_session_id or thread.id
        if version == "v1":
            headers["openai-alpha"] = "quicksilver=v1"
        base = effective.experimental_realtime_ws_base_url or provider.base_url
        model = params.model or effective.experimental_realtime_ws_model or DEFAULT_MODEL
        secrets = [*secrets_of_url(base), *secrets_of_parameters(provider.query_params.items())]
        return ServiceAddress(service_url(base, provider, version, model), headers, secrets)


def service_url(base: str, provider: ProviderConfig, version: Version, model: str) -> str:
    """Return the address of a realtime service whose provider has this base URL."""
    parts = urlsplit(base)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/") or "/v1"
    query = {"intent": "quicksilver"} if version == "v1" else {}
    encoded = urlencode({**provider.query_params, **query, "model": model})
    return urlunsplit((scheme, parts.netloc, f"{path}/realtime", encoded, ""))


def _options(
    thread: LoadedThread, params: ThreadRealtimeStartParams, effective: EffectiveConfig
) -> RealtimeOptions:
    version = params.version or (effective.realtime or {}).get("version") or "v2"
    if version not in ("v1", "v2"):
        raise InvalidInput("version", f"version {version!r} is not supported, only v1 and v2")
    if params.transport is not None and params.transport.__struct_config__.tag != "websocket":
        raise InvalidInput("transport", "only the transport `websocket` is supported")
    if params.initial_items:
        raise InvalidInput("initialItems", "initial items require version v3")
    modality = params.output_modality or "audio"
    if modality == "text" and version == "v1":
        # Upstream's text: its clients show it.
        message = "text realtime output modality requires realtime v2"
        raise InvalidInput("outputModality", message)
    voice = params.voice or default_voice(version)
    if voice not in voices_of(version):
        allowed = ", ".join(voices_of(version))
        raise InvalidInput("voice", f"voice {voice!r} is not one of version {version}: {allowed}")
    given = {
        name: text
        for name, text in (
            ("start_instructions", params.realtime_start_instructions),
            ("end_instructions", params.realtime_end_instructions),
        )
        if text
    }
    instructions = _instructions(thread, params, effective)
    return RealtimeOptions(version, instructions, voice, modality, **given)


def _instructions(
    thread: LoadedThread, params: ThreadRealtimeStartParams, effective: EffectiveConfig
) -> str:
    default = effective.experimental_realtime_ws_backend_prompt or _PROMPT
    prompt = (params.prompt or "") if params.prompt is not UNSET else default
    if params.include_startup_context is False:
        return prompt
    context = effective.experimental_realtime_ws_startup_context
    if context is None:
        context = startup_context(thread)
    parts = [prompt, f"<startup_context>\n{context}\n</startup_context>" if context else ""]
    return "\n\n".join(part for part in parts if part)
