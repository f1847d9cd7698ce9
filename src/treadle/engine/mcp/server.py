"""One MCP server of one thread: started, used, found dead, started again.

Its session lives in one task of its own, because the SDK's blocks must be left by the task that
entered them. Whoever calls the server waits in a task of its own and may be cancelled at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from treadle.engine.mcp.config import BadServer, ServerConfig, read_server
from treadle.protocol.base import JsonValue
from treadle.protocol.mcp import (
    McpServerConnectionStatus,
    McpServerStartupFailureReason,
    McpServerStartupState,
)
from treadle.support.concurrency.tasks import BackgroundTasks

if TYPE_CHECKING:
    from treadle.engine.mcp.connection.session import McpSession
    from treadle.engine.mcp.tokens import TokenFile

CLOSE_SECONDS: Final = 8.0
MAX_PAGES: Final = 100

Raw: TypeAlias = dict[str, JsonValue]
Elicit: TypeAlias = Callable[[Raw], Awaitable[Raw]]
Documents: TypeAlias = Literal["resources", "resourceTemplates"]
OnProgress: TypeAlias = Callable[[str], None]
Ask: TypeAlias = Callable[[str, Raw, OnProgress | None], Awaitable[Raw]]

logger = logging.getLogger(__name__)


class McpError(Exception):
    """The server could not be asked, or refused; `code` is its own, if it gave one."""

    def __init__(self, message: str, *, code: int | None = None, is_lost: bool = False) -> None:
        super().__init__(message)
        self.code = code
        # The connection is gone: the server may or may not have done what it was asked.
        self.is_lost = is_lost


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A step in the life of a server, as clients are told it."""

    name: str
    status: McpServerStartupState
    error: str | None = None
    reason: McpServerStartupFailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a server needs of its surroundings."""

    cwd: str
    environ: Mapping[str, str]
    tasks: BackgroundTasks
    tokens: TokenFile
    elicit: Elicit
    on_change: Callable[[StatusChange], None]


class McpServer:
    """A configured server: what is known of it, and the session if there is one."""

    def __init__(self, name: str, table: JsonValue, setting: Setting) -> None:
        self.name = name
        self.table = table
        self.config = ServerConfig(command="")
        self.status: McpServerConnectionStatus = "notStarted"
        self.error: str | None = None
        # What the last session said of itself; it holds until another one says otherwise.
        self.about: Raw = {}
        self.tools: dict[str, Raw] = {}
        self.is_bad = False
        self._setting = setting
        # The one that was begun last; what older ones say while they end is of no interest.
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
    def instructions(self) -> str | None:
        """How the server wants to be used, in its own words."""
        text = self.about.get("instructions")
        return text if isinstance(text, str) and text.strip() else None

    @property
    def offered(self) -> Sequence[Raw]:
        """The tools that the model may see; they stay while a dead server is not yet needed."""
        return [tool for name, tool in self.tools.items() if self.config.offers(name)]

    @property
    def is_missed(self) -> bool:
        """Whether no turn can be run because it is not there."""
        return self.config.required and self.config.enabled and self.error is not None

    def start(self) -> None:
        """Start the server, unless it runs, starts or is switched off."""
        if self.status in ("starting", "connected", "disabled") or self._closing.is_set():
            return
        self.status = "starting"
        self._settled.clear()
        self._setting.on_change(StatusChange(self.name, "starting"))
        if self.is_bad:
            self._fail(self.error or "")
            return
        before, self._session = self._task, None
        self._task = self._setting.tasks.spawn(self._live(before), f"mcp {self.name}")
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task is self._task:
            self._settled.set()

    async def settled(self) -> None:
        """Wait until it is known whether the server is ready."""
        if self.status == "starting":
            await self._settled.wait()

    def close(self) -> None:
        """End the session; the process is gone a moment later."""
        self._closing.set()
        if self.status == "starting" and self._task is not None:
            self._task.cancel()

    async def closed(self) -> None:
        """Wait until the process is gone."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def call(self, tool: str, arguments: JsonValue, meta: JsonValue, told: OnProgress) -> Raw:
        """Call a tool; the result is as the server gave it.

        Raises:
            McpError: the server is not there, refused, or took too long, or the tool is disabled.
        """
        if not self.config.offers(tool):
            raise McpError(f"tool '{tool}' is disabled for MCP server '{self.name}'")
        if not isinstance(arguments, dict | None):
            where = f"tool call failed for `{self.name}/{tool}`"
            raise McpError(f"{where}: MCP tool arguments must be a JSON object")
        params: Raw = {"name": tool, "arguments": arguments, "_meta": meta}
        return await self.ask("tools/call", params, told)

    async def ask(self, method: str, params: Raw, told: OnProgress | None = None) -> Raw:
        """Make a request, starting the server again first if it has died.

        Raises:
            McpError: the server is not there, refused, or took too long.
        """
        session = await self._ready_session()
        try:
            return await session.ask(method, params, told)
        except McpError as error:
            if not session.notes.is_forgotten:
                raise
            # The server has lost the session and so has not read the request: it is made anew.
            logger.info("mcp session forgotten", extra={"server": self.name, "reason": str(error)})
        session.end()
        return await (await self._ready_session()).ask(method, params, told)

    async def documents(self, key: Documents) -> list[Raw]:
        """All documents, or patterns of documents, that a running server lists; none if it fails.

        One that takes too long, or whose list does not end, counts as one that has none.
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

    async def _live(self, before: asyncio.Task[None] | None) -> None:
        """The whole life of one session."""
        if before is not None and not before.done():
            await asyncio.wait([before])
        # Half a second of imports: in a thread, so that nobody else waits for it.
        try:
            await asyncio.to_thread(_load)
        except ImportError as error:
            self._fail(f"MCP startup failed: {error}; to add it: pip install 'treadle[mcp]'")
            return
        from treadle.engine.mcp.connection.session import McpSession

        session = self._session = McpSession(self.name, self.config, self._setting)
        life = self._lives.spawn(
            session.live(self._on_ready, self._on_failed, self._closing), f"mcp {self.name} session"
        )
        try:
            await asyncio.wait([life])
        except asyncio.CancelledError:
            # The SDK's clean-up must not be cut short, or the process would stay: it is waited for.
            self._closing.set()
            if session.is_connecting:
                life.cancel()
            await asyncio.wait([life])
            if self._session is session and self.status == "starting":
                self.status = "cancelled"
                self._setting.on_change(StatusChange(self.name, "cancelled"))
            raise
        finally:
            if self._session is session and self.status == "connected":
                self.status = "notStarted"

    def _on_ready(self, session: McpSession) -> None:
        if self._session is not session:
            return
        self.about = session.about
        self.tools = session.tools
        self.error = None
        self.status = "connected"
        self._settled.set()
        # Told again when its tools have changed: whoever shows them looks anew.
        self._setting.on_change(StatusChange(self.name, "ready"))

    def _on_failed(self, session: McpSession, reason: str) -> None:
        if self._session is session and self.status in ("starting", "connected"):
            self._fail(f"MCP startup failed: {reason}", session=session)

    def _fail(self, reason: str, session: McpSession | None = None) -> None:
        needs_login = session is not None and session.notes.needs_login
        was_starting = self.status == "starting"
        self.status = "authenticationRequired" if needs_login else "failed"
        self.error = reason
        self._settled.set()
        if was_starting:
            text = self._startup_error(reason, session)
            why: McpServerStartupFailureReason | None = None
            if needs_login and session is not None and session.had_login:
                why = "reauthenticationRequired"
            self._setting.on_change(StatusChange(self.name, "failed", text, why))
        else:
            logger.warning("mcp server died", extra={"server": self.name, "reason": reason})

    def _startup_error(self, reason: str, session: McpSession | None) -> str:
        name = self.name
        if session is not None and session.notes.needs_login:
            return f"The {name} MCP server is not logged in. Sign in with mcpServer/oauth/login."
        if session is not None and session.took_too_long:
            seconds = f"{self.config.startup_seconds:g}"
            advice = "Add or adjust `startup_timeout_sec` in your config.toml"
            table = f"[mcp_servers.{name}]\nstartup_timeout_sec = XX"
            return f"MCP client for `{name}` timed out after {seconds} seconds. {advice}:\n{table}"
        return f"MCP client for `{name}` failed to start: {reason}"


async def list_all(ask: Ask, method: str, key: str) -> list[Raw]:
    """All pages of a list; one that never ends is cut off."""
    found: list[Raw] = []
    cursor: JsonValue = None
    for _page in range(MAX_PAGES):
        page = await ask(method, {"cursor": cursor}, None)
        found += page.get(key) or []
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return found


def _load() -> None:
    """Import the SDK."""
    import treadle.engine.mcp.connection.session  # noqa: F401 - imported for its effect
