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
    host: ServerHandle, scene: EvaluationContext, order: EvaluationSpec, tools: list[Tool]
) -> tuple[AsyncThread, bool]:
    """Start a thread or go on with one, and whether it was the latter; the session remembers it.

    Raises:
        ClientError: the server refuses, or is gone.
    """
    wanted = CodexAppServerSessionState(
        thread_id="",
        cwd=order.cwd,
        workspace_fingerprint=order.workspace_fingerprint,
        tools_fingerprint=tools_fingerprint([tool.spec() for tool in tools]),
    )
    memory = scene.session[CodexAppServerSessionState]
    thread = None
    if order.config.reuse_thread:
        stored = memory.latest()
        # One that works for another evaluation is not waited for.
        if stored is not None and stored.fits(wanted) and stored.thread_id not in host.guests:
            thread = await _resume(host, order, stored.thread_id, tools)
    is_resumed = thread is not None
    if thread is None:
        thread = await _start(host, order, tools)
    memory.seed(replace(wanted, thread_id=thread.id))
    return thread, is_resumed


async def _resume(
    host: ServerHandle, order: EvaluationSpec, thread_id: str, tools: list[Tool]
) -> AsyncThread | None:
    client = host.client
    if thread_id in client.core.subscribed:
        client.core.tools.bind(thread_id, tools)
        return client.thread(thread_id)
    settings = _settings(order)
    settings.pop("ephemeral", None)
    try:
        return await client.resume_thread(thread_id, tools=tools, **settings)
    except RequestRefused:
        return None  # the server does not know it any more: the session gets a new one


async def _start(host: ServerHandle, order: EvaluationSpec, tools: list[Tool]) -> AsyncThread:
    settings = _settings(order)
    try:
        return await host.client.start_thread(tools=tools, **settings)
    except RequestRefused:
        if settings["approval_policy"] != "on-failure":
            raise
    # Newer servers have no such policy; this one is the nearest.
    settings["approval_policy"] = "on-request"
    return await host.client.start_thread(tools=tools, **settings)


def _settings(order: EvaluationSpec) -> JsonValue:
    config = order.config
    more: dict[str, JsonValue] = dict(config.config or {})
    if config.mcp_servers:
        more["mcp_servers"] = dict(config.mcp_servers)
    return ThreadOptions(
        model=order.model.model,
        cwd=order.cwd,
        approval_policy=config.approval_policy,
        sandbox=config.sandbox_mode,
        ephemeral=config.ephemeral or None,
        config=more or None,
    )
