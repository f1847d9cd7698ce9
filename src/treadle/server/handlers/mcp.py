"""MCP servers: their status, tool calls and resources for clients, and OAuth logins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.mcp.server import SDK_MODULES, McpError, McpServer
from treadle.engine.mcp.servers import McpServers, temporary_servers
from treadle.engine.mcp.status import status_of
from treadle.engine.mcp.tokens import TokenFile
from treadle.jsonrpc.errors import InternalError, InvalidRequest, RpcError
from treadle.protocol import notifications as n
from treadle.protocol.base import NoParams
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    CONFIG_MCP_SERVER_RELOAD,
    MCP_SERVER_EVENT_STREAM_START,
    MCP_SERVER_EVENT_STREAM_STOP,
    MCP_SERVER_OAUTH_LOGIN,
    MCP_SERVER_RESOURCE_READ,
    MCP_SERVER_STATUS_LIST,
    MCP_SERVER_TOOL_CALL,
)
from treadle.protocol.mcp import (
    ListMcpServerStatusParams,
    ListMcpServerStatusResponse,
    McpResourceReadParams,
    McpResourceReadResponse,
    McpServerEventStreamStartParams,
    McpServerEventStreamStartResponse,
    McpServerEventStreamStopParams,
    McpServerEventStreamStopResponse,
    McpServerOauthLoginCompletedNotification,
    McpServerOauthLoginParams,
    McpServerOauthLoginResponse,
    McpServerRefreshResponse,
    McpServerStatus,
    McpServerToolCallParams,
    McpServerToolCallResponse,
)
from treadle.server.paging.offset import page
from treadle.server.session import ClientSession
from treadle.support.concurrency.imports import import_late
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.mcp.oauth import SignIn
    from treadle.server.server import Server

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

LOGIN_SECONDS: Final = 300


@router.request(MCP_SERVER_STATUS_LIST)
async def mcp_server_status_list(
    ctx: Context[ClientSession], params: ListMcpServerStatusParams
) -> ListMcpServerStatusResponse:
    """List the servers of a thread with their state, or the configured ones without a thread."""
    async with _servers(ctx.session, params.thread_id) as servers:
        ordered = sorted(servers, key=lambda each: each.name)
        selected = [each for each in ordered if params.server_name in (None, each.name)]
        servers_page, next_cursor = page(selected, params.cursor, params.limit, of="MCP servers")
        data = await _describe(
            servers_page,
            servers.tokens,
            has_thread=params.thread_id is not None,
            is_full=params.detail != "toolsAndAuthOnly",
        )
    return ListMcpServerStatusResponse(data=data, next_cursor=next_cursor)


async def _describe(
    servers: list[McpServer], tokens: TokenFile, *, has_thread: bool, is_full: bool
) -> list[McpServerStatus]:
    async with asyncio.TaskGroup() as tasks:
        looks = [
            tasks.create_task(status_of(each, tokens, has_thread=has_thread, is_full=is_full))
            for each in servers
        ]
    return [look.result() for look in looks]


@router.request(CONFIG_MCP_SERVER_RELOAD)
def config_mcp_server_reload(
    ctx: Context[ClientSession], _params: NoParams
) -> McpServerRefreshResponse:
    """Apply the current configuration to loaded threads."""
    threads = ctx.session.server.threads

    def reload() -> None:
        for thread_id in threads.loaded_ids():
            threads.get(thread_id).mcp.reload()

    ctx.after_reply(reload)
    return McpServerRefreshResponse()


@router.request(MCP_SERVER_TOOL_CALL)
async def mcp_server_tool_call(
    ctx: Context[ClientSession], params: McpServerToolCallParams
) -> McpServerToolCallResponse:
    """Call a tool for the client, which decides about approval itself."""
    ctx.release_scope()
    servers = ctx.session.server.threads.get(params.thread_id).mcp
    try:
        raw = await servers.get(params.server).call(
            params.tool, params.arguments, params.meta, lambda _message: None
        )
    except McpError as error:
        raise _refusal(error) from error
    return msgspec.convert(raw, McpServerToolCallResponse)


@router.request(MCP_SERVER_RESOURCE_READ)
async def mcp_server_resource_read(
    ctx: Context[ClientSession], params: McpResourceReadParams
) -> McpResourceReadResponse:
    """Read a resource from a server of a thread or of the configuration."""
    ctx.release_scope()
    async with _servers(ctx.session, params.thread_id) as servers:
        try:
            raw = await servers.get(params.server).ask("resources/read", {"uri": params.uri})
        except McpError as error:
            raise _refusal(error) from error
    contents = raw.get("contents")
    return McpResourceReadResponse(
        contents=contents if isinstance(contents, list) else [],
        origin_call_id=params.origin_call_id,
    )


@router.request(MCP_SERVER_EVENT_STREAM_START)
def mcp_server_event_stream_start(
    _ctx: Context[ClientSession], _params: McpServerEventStreamStartParams
) -> McpServerEventStreamStartResponse:
    """Refuse: only hosted apps have event streams, and this server has none."""
    raise InvalidRequest("MCP event subscriptions are only supported for hosted apps")


@router.request(MCP_SERVER_EVENT_STREAM_STOP)
def mcp_server_event_stream_stop(
    _ctx: Context[ClientSession], _params: McpServerEventStreamStopParams
) -> McpServerEventStreamStopResponse:
    """Succeed: no stream is open."""
    return McpServerEventStreamStopResponse()


@router.request(MCP_SERVER_OAUTH_LOGIN)
async def mcp_server_oauth_login(
    ctx: Context[ClientSession], params: McpServerOauthLoginParams
) -> McpServerOauthLoginResponse:
    """Start an OAuth login and return the page to open; its result is published later."""
    ctx.release_scope()
    server = ctx.session.server
    sign_in = await _sign_in(server, params)
    page_url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    login_id = uuid7()
    server.threads.services.tasks.spawn(
        _log_in(ctx.session, sign_in, params, login_id, page_url), "mcp login"
    )
    try:
        url = await page_url
    except McpError as error:
        raise InternalError(str(error), kind="mcpLoginFailed") from error
    return McpServerOauthLoginResponse(authorization_url=url, login_id=login_id)


async def _sign_in(server: Server, params: McpServerOauthLoginParams) -> SignIn:
    threads = server.threads
    thread = threads.get(params.thread_id) if params.thread_id is not None else None
    common = threads.services.mcp.config(thread.settings if thread else None)
    if params.name not in common.servers:
        raise InvalidRequest(f"No MCP server named '{params.name}' found.", kind="mcpNotFound")
    from treadle.engine.mcp.config import BadServer, read_server

    try:
        config = read_server(params.name, common.servers[params.name])
    except BadServer as error:
        raise InvalidRequest(str(error), kind="invalidConfig") from error
    if config.url is None:
        raise InvalidRequest("OAuth login is only supported for streamable HTTP servers.")
    if params.client_registration == "cimd":
        raise InvalidRequest("this client has no metadata document: use `dcr` or `auto`")
    await import_late(*SDK_MODULES)
    from treadle.engine.mcp.oauth import SignIn

    return SignIn(
        name=params.name,
        server=config,
        common=common,
        tokens=TokenFile(threads.services.home),
        scopes=params.scopes,
    )


async def _log_in(
    session: ClientSession,
    sign_in: SignIn,
    params: McpServerOauthLoginParams,
    login_id: str,
    page_url: asyncio.Future[str],
) -> None:
    """Log in, publish the result, and let threads use the new token."""
    server = session.server
    fault: str | None = None

    def show(url: str) -> None:
        if not page_url.done():
            page_url.set_result(url)

    try:
        async with server.mcp_logins.waiting(session, params.timeout_secs or LOGIN_SECONDS):
            await sign_in.run(show)
    except (McpError, OSError) as error:
        fault = str(error) or "timed out waiting for the sign-in"
    finally:
        if not page_url.done():
            page_url.set_exception(McpError(fault or "the sign-in was cancelled"))
            fault = None
    if page_url.exception() is not None:
        return
    server.threads.services.broadcast(
        n.MCP_SERVER_OAUTH_LOGIN_COMPLETED,
        McpServerOauthLoginCompletedNotification(
            name=sign_in.name,
            success=fault is None,
            login_id=login_id,
            thread_id=params.thread_id,
            **({} if fault is None else {"error": fault}),
        ),
    )
    if fault is None:
        for thread_id in server.threads.loaded_ids():
            server.threads.get(thread_id).mcp.retry(sign_in.name)


@asynccontextmanager
async def _servers(session: ClientSession, thread_id: str | None) -> AsyncIterator[McpServers]:
    """Yield the servers of a thread, or temporary ones from the configuration.

    Each request starts its own processes: few requests of a client do so at once.
    """
    threads = session.server.threads
    services = threads.services
    if thread_id is not None:
        servers = threads.get(thread_id).mcp
        servers.start()
        yield servers
        return
    async with (
        session.mcp_starts,
        temporary_servers(
            services.mcp,
            tasks=services.tasks,
            home=services.home,
            sandbox=services.sandbox,
            boundary=services.boundary,
        ) as servers,
    ):
        yield servers


def _refusal(error: McpError) -> RpcError:
    """Return the server's error, or the reason why the call did not reach it."""
    if error.code is not None:
        return RpcError(error.code, str(error), {"kind": "mcpError"})
    return InternalError(str(error), kind="mcpUnavailable")
