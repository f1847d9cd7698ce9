"""The thread that a prompt is evaluated in: a new one, or the session's own."""

from __future__ import annotations

from dataclasses import replace

from treadle.client.errors import RequestRefused
from treadle.client.options import ThreadOptions
from treadle.client.thread import AsyncThread
from treadle.client.tools import Tool
from treadle.protocol.base import JsonValue
from treadle.wink.context import EvaluationContext
from treadle.wink.server import ServerHandle
from treadle.wink.spec import EvaluationSpec
from treadle.wink.state import CodexAppServerSessionState, tools_fingerprint


async def open_thread(
    server: ServerHandle, context: EvaluationContext, spec: EvaluationSpec, tools: list[Tool]
) -> tuple[AsyncThread, bool]:
    """Start or resume a thread, record it in the session, and return whether it was resumed.

    Raises:
        ClientError: the server refuses, or is gone.
    """
    target = CodexAppServerSessionState(
        thread_id="",
        cwd=spec.cwd,
        workspace_fingerprint=spec.workspace_fingerprint,
        tools_fingerprint=tools_fingerprint([tool.spec() for tool in tools]),
    )
    memory = context.session[CodexAppServerSessionState]
    thread = None
    if spec.config.reuse_thread:
        stored = memory.latest()
        # A thread of another running evaluation is not reused.
        if (
            stored is not None
            and stored.fits(target)
            and stored.thread_id not in server.evaluations
        ):
            thread = await _resume(server, spec, stored.thread_id, tools)
    is_resumed = thread is not None
    if thread is None:
        thread = await _start(server, spec, tools)
    memory.seed(replace(target, thread_id=thread.id))
    return thread, is_resumed


async def _resume(
    server: ServerHandle, spec: EvaluationSpec, thread_id: str, tools: list[Tool]
) -> AsyncThread | None:
    client = server.client
    if thread_id in client.core.subscribed:
        client.core.tools.bind(thread_id, tools)
        return client.thread(thread_id)
    settings = _settings(spec)
    settings.pop("ephemeral", None)
    try:
        return await client.resume_thread(thread_id, tools=tools, **settings)
    except RequestRefused:
        return None  # the server no longer knows it: the session gets a new one


async def _start(server: ServerHandle, spec: EvaluationSpec, tools: list[Tool]) -> AsyncThread:
    settings = _settings(spec)
    try:
        return await server.client.start_thread(tools=tools, **settings)
    except RequestRefused:
        if settings["approval_policy"] != "on-failure":
            raise
    # Newer servers do not have this policy; `on-request` is the nearest.
    settings["approval_policy"] = "on-request"
    return await server.client.start_thread(tools=tools, **settings)


def _settings(spec: EvaluationSpec) -> JsonValue:
    config = spec.config
    more: dict[str, JsonValue] = dict(config.config or {})
    if config.mcp_servers:
        more["mcp_servers"] = dict(config.mcp_servers)
    return ThreadOptions(
        model=spec.model.model,
        cwd=spec.cwd,
        approval_policy=config.approval_policy,
        sandbox=config.sandbox_mode,
        ephemeral=config.ephemeral or None,
        config=more or None,
    )
