"""One MCP server of one thread: its start, its requests and its restarts.

The session lives in a separate task, because the SDK's context managers must be exited by the task
that entered them. Callers wait in their own tasks and may be cancelled at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from treadle.engine.apps.names import NamedTool, named_tools
from treadle.engine.apps.tools import is_for_models
from treadle.engine.mcp.config import (
    ApprovalMode,
    BadServer,
    HostedApps,
    PluginOfServer,
    ServerConfig,
    read_server,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.mcp import (
    McpServerConnectionStatus,
    McpServerStartupFailureReason,
    McpServerStartupState,
)
from treadle.support.concurrency.imports import import_late
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.support.text.json_text import encode_json

if TYPE_CHECKING:
    from treadle.engine.mcp.connection.session import McpSession
    from treadle.engine.mcp.tokens import TokenFile
    from treadle.sandbox.sandbox import Sandbox

CLOSE_SECONDS: Final = 8.0
SDK_MODULES: Final = (
    "treadle.engine.mcp.connection.session",
    "treadle.engine.mcp.connection.account",
    "treadle.engine.mcp.oauth",
)
"""The modules that import the MCP SDK, together: it takes half a second."""

MAX_PAGES: Final = 100
MAX_ENTRIES: Final = 5_000
"""The most entries of all pages of one list, such as the tools of a server."""

MAX_LIST_BYTES: Final = 16 * 1024 * 1024
"""The largest size of all pages of one list, which is kept for each thread."""

Raw: TypeAlias = dict[str, JsonValue]
Elicit: TypeAlias = Callable[[Raw], Awaitable[Raw]]
ResourceKind: TypeAlias = Literal["resources", "resourceTemplates"]
OnProgress: TypeAlias = Callable[[str], None]
Send: TypeAlias = Callable[[str, Raw, OnProgress | None], Awaitable[Raw]]

logger = logging.getLogger(__name__)


class McpError(Exception):
    """A request failed; `code` is the error code of the server, if there is one."""

    def __init__(self, message: str, *, code: int | None = None, is_lost: bool = False) -> None:
        super().__init__(message)
        self.code = code
        # The connection is lost: the server may or may not have processed the request.
        self.is_lost = is_lost


class StatusChange(Struct, frozen=True):
    """A change of a server's status, for clients."""

    name: str
    status: McpServerStartupState
    error: str | None = None
    reason: McpServerStartupFailureReason | None = None


class ServerContext(Struct, frozen=True, kw_only=True):
    """What a server needs from outside."""

    cwd: str
    environ: Mapping[str, str]
    tasks: BackgroundTasks
    sandbox: Sandbox
    tokens: TokenFile
    elicit: Elicit
    on_change: Callable[[StatusChange], None]
    # The account's apps, if the server has their tools.
    apps: HostedApps | None = None


class McpServer:
    """A configured server: its state, and its session if there is one."""

    def __init__(
        self,
        name: str,
        table: JsonValue,
        context: ServerContext,
        plugin: PluginOfServer | None = None,
    ) -> None:
        self.name = name
        self.table = table
        # The plugin that provides the server, if it is not the user's own.
        self.plugin = plugin
        # The account's apps, if the server has their tools; replaced when the policy changes.
        self.apps = context.apps
        # The names of the tools of apps, and the list and the policy that they are from.
        self._named: tuple[dict[str, Raw], HostedApps | None, list[NamedTool]] | None = None
        self.config = ServerConfig(command="")
        self.status: McpServerConnectionStatus = "notStarted"
        self.error: str | None = None
        # The server's answer to `initialize` in the last session, kept until the next one.
        self.about: Raw = {}
        self.tools: dict[str, Raw] = {}
        self.is_bad = False
        # It ended after it was ready, so that another start may succeed.
        self.has_ended = False
        self._context = context
        # The latest session; reports of older ones while they end are ignored.
        self._session: McpSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._lives = BackgroundTasks()
        self._settled = asyncio.Event()
        self._closing = asyncio.Event()
        try:
            self.config = read_server(name, table)
            if not self.config.enabled:
                self.status = "disabled"
        except BadServer as error:
            self.is_bad = True
            self.error = f"MCP startup failed: {error}"

    @property
    def plugin_id(self) -> str | None:
        """The id of the plugin that provides the server."""
        return None if self.plugin is None else self.plugin.id

    @property
    def instructions(self) -> str | None:
        """The instructions of the server for the model."""
        text = self.about.get("instructions")
        return text if isinstance(text, str) and text.strip() else None

    @property
    def offered(self) -> Sequence[Raw]:
        """The tools that the model may see, even while the server is down."""
        offered = [tool for tool in self.tools.values() if self._offers(tool)]
        return offered if self.plugin is None else [_with_plugin(t, self.plugin) for t in offered]

    @property
    def app_tools(self) -> Sequence[NamedTool]:
        """The tools of apps that the model may see, named once for each list and policy."""
        tools, apps = self.tools, self.apps
        if self._named is None or self._named[0] is not tools or self._named[1] is not apps:
            self._named = tools, apps, named_tools(list(filter(is_for_models, self.offered)))
        return self._named[2]

    def approval_mode(self, tool: Raw) -> ApprovalMode:
        """When calls of a tool require approval."""
        if self.apps is not None:
            return self.apps.policy.approval_mode(tool)
        return self.config.approval_mode(str(tool["name"]))

    def _offers(self, tool: Raw) -> bool:
        is_offered = self.config.offers(str(tool["name"]))
        return is_offered and (self.apps is None or self.apps.policy.offers(tool))

    @property
    def is_missing(self) -> bool:
        """Whether the server is required and failed, so that no turn can run."""
        return self.config.required and self.config.enabled and self.error is not None

    def start(self) -> None:
        """Start the server, unless it is running, starting or disabled."""
        if self.status in ("starting", "connected", "disabled") or self._closing.is_set():
            return
        self.status = "starting"
        self._settled.clear()
        self._context.on_change(StatusChange(self.name, "starting"))
        if self.is_bad:
            self._fail(self.error or "")
            return
        previous, self._session = self._task, None
        self._task = self._context.tasks.spawn(self._live(previous), f"mcp {self.name}")
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task is self._task:
            self._settled.set()

    async def settled(self) -> None:
        """Wait until the server is ready or has failed."""
        if self.status == "starting":
            await self._settled.wait()

    def close(self) -> None:
        """End the session; the process ends a moment later."""
        self._closing.set()
        if self.status == "starting" and self._task is not None:
            # At once: the process may take seconds to end.
            self.status = "cancelled"
            self._context.on_change(StatusChange(self.name, "cancelled"))
            self._task.cancel()

    async def closed(self) -> None:
        """Wait until the process has ended."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def call(
        self, tool: str, arguments: JsonValue, meta: JsonValue, on_progress: OnProgress
    ) -> Raw:
        """Call a tool; the result is unchanged.

        Raises:
            McpError: the server is unavailable, refused or timed out, or the tool is disabled.
        """
        if self.apps is not None:
            # Without its tools, the server offers none.
            await self._ready_session()
        known = self.tools.get(tool, {"name": tool})
        if not self._offers(known):
            raise McpError(f"tool '{tool}' is disabled for MCP server '{self.name}'")
        if not isinstance(arguments, dict | None):
            where = f"tool call failed for `{self.name}/{tool}`"
            raise McpError(f"{where}: MCP tool arguments must be a JSON object")
        params: Raw = {"name": tool, "arguments": arguments, "_meta": meta}
        return await self.ask("tools/call", params, on_progress)

    async def ask(self, method: str, params: Raw, on_progress: OnProgress | None = None) -> Raw:
        """Send a request; restart the server first if it has ended.

        Raises:
            McpError: the server is unavailable, refused or timed out.
        """
        if self.apps is not None and await self.apps.login(None) is None:
            raise McpError("not signed in with the ChatGPT account of these apps")
        session = await self._ready_session()
        try:
            return await session.ask(method, params, on_progress)
        except McpError as error:
            if not session.notes.is_lost_session:
                raise
            # The server lost the session and has not processed the request: retry in a new session.
            logger.info("mcp session lost", extra={"server": self.name, "reason": str(error)})
        session.end()
        return await (await self._ready_session()).ask(method, params, on_progress)

    async def list_resources(self, key: ResourceKind) -> list[Raw]:
        """All resources, or resource templates, of a running server; none if the request fails.

        A server that takes too long counts as one without resources.
        """
        if "resources" not in (self.about.get("capabilities") or {}):
            return []
        method = "resources/list" if key == "resources" else "resources/templates/list"
        try:
            return await list_all(self.ask, method, key)
        except McpError as error:
            logger.info("mcp list failed", extra={"server": self.name, "reason": str(error)})
            return []

    async def _ready_session(self) -> McpSession:
        if self._session is None or not self._session.is_alive:
            if self.status == "connected":
                self.status = "failed"
            self.start()
        await self.settled()
        if self._session is None or not self._session.is_alive:
            raise McpError(self.error or f"MCP server '{self.name}' is {self.status}", is_lost=True)
        return self._session

    async def _live(self, previous: asyncio.Task[None] | None) -> None:
        """Run one session from start to end."""
        if previous is not None and not previous.done():
            await asyncio.wait([previous])
        try:
            await import_late(*SDK_MODULES)
        except ImportError as error:
            self._fail(f"MCP startup failed: {error}; to install it: pip install 'treadle[mcp]'")
            return
        from treadle.engine.mcp.connection.session import McpSession

        session = self._session = McpSession(self.name, self.config, self._context)
        life = self._lives.spawn(
            session.live(self._on_ready, self._on_failed, self._closing), f"mcp {self.name} session"
        )
        try:
            await asyncio.wait([life])
        except asyncio.CancelledError:
            # Wait for the SDK's clean-up, without which the process would survive.
            self._closing.set()
            if session.is_connecting:
                life.cancel()
            await asyncio.wait([life])
            raise
        finally:
            if self._session is session and self.status == "connected":
                self.status = "notStarted"

    def _on_ready(self, session: McpSession) -> None:
        if self._session is not session or self._closing.is_set():
            return
        self.about = session.about
        self.tools = session.tools
        self.error = None
        self.status = "connected"
        self._settled.set()
        # Published again when the tools have changed, so that clients refresh them.
        self._context.on_change(StatusChange(self.name, "ready"))

    def _on_failed(self, session: McpSession, reason: str) -> None:
        if self._session is session and self.status in ("starting", "connected"):
            what = "startup failed" if self.status == "starting" else "server ended"
            self._fail(f"MCP {what}: {reason}", session=session)

    def _fail(self, reason: str, session: McpSession | None = None) -> None:
        needs_login = session is not None and session.notes.needs_login
        was_starting = self.status == "starting"
        self.has_ended = not was_starting
        self.status = "authenticationRequired" if needs_login else "failed"
        self.error = reason
        self._settled.set()
        if was_starting:
            text = self._startup_error(reason, session)
            cause: McpServerStartupFailureReason | None = None
            if needs_login and session is not None and session.had_login:
                cause = "reauthenticationRequired"
            self._context.on_change(StatusChange(self.name, "failed", text, cause))
        else:
            logger.warning("mcp server ended", extra={"server": self.name, "reason": reason})

    def _startup_error(self, reason: str, session: McpSession | None) -> str:
        name = self.name
        if self.apps is not None and session is not None and session.notes.needs_login:
            return f"The {name} MCP server rejected the ChatGPT login. Sign in to ChatGPT again."
        if session is not None and session.notes.needs_login:
            return f"The {name} MCP server is not logged in. Sign in with mcpServer/oauth/login."
        if session is not None and session.took_too_long:
            seconds = f"{self.config.startup_seconds:g}"
            advice = "Add or adjust `startup_timeout_sec` in your config.toml"
            table = f"[mcp_servers.{name}]\nstartup_timeout_sec = XX"
            return f"MCP client for `{name}` timed out after {seconds} seconds. {advice}:\n{table}"
        return f"MCP client for `{name}` failed to start: {reason}"


async def list_all(send: Send, method: str, key: str) -> list[Raw]:
    """All pages of a list.

    Raises:
        McpError: a request failed, or the list is too long.
    """
    entries: list[Raw] = []
    size = 0
    cursor: JsonValue = None
    for _page in range(MAX_PAGES):
        page = await send(method, {"cursor": cursor}, None)
        size += len(encode_json(page))
        entries += page.get(key) or []
        if len(entries) > MAX_ENTRIES:
            raise McpError(f"the answers to {method} have more than {MAX_ENTRIES} entries")
        if size > MAX_LIST_BYTES:
            raise McpError(f"the answers to {method} have more than {MAX_LIST_BYTES} bytes")
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return entries


def _with_plugin(tool: Raw, plugin: PluginOfServer) -> Raw:
    """Return a tool whose description names the plugin that it is from."""
    text = tool.get("description")
    part = f"This tool is part of plugin `{plugin.title}`."
    if isinstance(text, str) and text:
        part = f"{text}{'' if text.endswith('.') else '.'} {part}"
    return {**tool, "description": part}
