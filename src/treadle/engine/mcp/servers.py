"""The MCP servers of one thread, or temporary ones without a thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.engine.apps.tools import INSTRUCTIONS
from treadle.engine.apps.tools import SERVER as APPS
from treadle.engine.conversation.input import message
from treadle.engine.mcp.config import HostedApps, McpConfig, McpSource
from treadle.engine.mcp.elicitation import DECLINED, elicit
from treadle.engine.mcp.names import NamedMcpTool, is_of, model_tools
from treadle.engine.mcp.server import McpError, McpServer, Raw, ServerContext, StatusChange
from treadle.engine.mcp.startup import StartupRecord
from treadle.engine.mcp.tokens import TokenFile
from treadle.engine.tools.output import truncate
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.mcp import McpServerStatusUpdatedNotification
from treadle.sandbox.policy import Confinement
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.support.files.working_folder import working_folder

if TYPE_CHECKING:
    from treadle.engine.conversation.model_context import ModelContext
    from treadle.engine.state import ThreadState
    from treadle.engine.turn import ActiveTurn
    from treadle.sandbox.boundary import Boundary
    from treadle.sandbox.sandbox import Sandbox

APPS_RETRY_SECONDS: Final = 60.0
"""How long after a failed start of the server of apps a turn starts it again."""

INSTRUCTION_TOKENS: Final = 2_000
STARTUP_PREFIX: Final = "MCP startup failed: "


class NoMcp:
    """A source without MCP servers."""

    environ: Final[dict[str, str]] = {}

    def __init__(self) -> None:
        self.startup_record: Final = StartupRecord()

    def config(self, settings: object) -> McpConfig:  # noqa: ARG002 - as the protocol has it
        """No servers."""
        return McpConfig()

    def account(self, settings: object) -> None:
        """No account."""

    def approve_always(self, server: str, tool: str, app_id: str | None = None) -> bool:  # noqa: ARG002 - as the protocol
        """Not possible."""
        return False


class McpServers:
    """The configured servers, the names of their tools, and the approved tools."""

    def __init__(
        self,
        source: McpSource,
        *,
        tasks: BackgroundTasks,
        home: Path,
        sandbox: Sandbox,
        thread: ThreadState | None = None,
        boundary: Boundary | None = None,
    ) -> None:
        """Take the thread of the servers, or else the boundary of the server that starts them."""
        self.tokens = TokenFile(home)
        # Tools that the user approved while the thread is loaded.
        self.approved: set[tuple[str, str]] = set()
        self._source = source
        self._tasks = tasks
        self._sandbox = sandbox
        self._boundary = boundary
        self._thread = thread
        self._servers: dict[str, McpServer] = {}
        # The latest time until which the model waits for each server.
        self._deadlines: dict[str, float] = {}
        self._waited_for: str | None = None
        self._calls: dict[str, list[str]] = {}
        self._ids = count(1)
        self._grace_seconds = 0.0
        self._is_current = False
        self._is_closed = False
        # The account whose apps the thread uses; it may change at any time.
        self._account: str | None = None
        self._apps_retry_at = inf

    # -- start and end

    def start(self) -> None:
        """Start the configured servers that are not running."""
        settings = self._thread.settings if self._thread else None
        account = self._source.account(settings)
        if (not self._is_current or account != self._account) and not self._is_closed:
            if self._account is not None and account != self._account:
                # What was approved for one account is not for the next one.
                self.approved = {each for each in self.approved if each[0] != APPS}
            self._account = account
            self._apply(self._source.config(settings), announces=not self._is_current)
            self._is_current = True
        elif asyncio.get_running_loop().time() >= self._apps_retry_at:
            # It is the user's, not configured, so that nothing else would start it again.
            self.retry(APPS)

    def reload(self) -> None:
        """Apply a changed configuration: at once, or after the active turn."""
        self._is_current = False
        self.refresh()

    def refresh(self) -> None:
        """Use the login in force: at once, or after the active turn."""
        if self._thread is None or self._thread.turn is None:
            self.start()
            self.retry(APPS)

    def retry(self, name: str) -> None:
        """Restart a server that failed."""
        server = self._servers.get(name)
        if (
            server is not None
            and not self._is_closed
            and server.status in ("failed", "authenticationRequired")
        ):
            self._source.startup_record.reset(server.table)
            self._start(server)

    def close(self) -> None:
        """End all servers; their processes end a moment later."""
        self._is_closed = True
        for server in self._servers.values():
            server.close()

    async def closed(self) -> None:
        """Wait until all processes have ended."""
        for server in self._servers.values():
            await server.closed()

    async def before_request(
        self, turn: ActiveTurn, calls: Collection[str], *, needs_apps: bool = False
    ) -> str | None:
        """Wait for servers, once in a turn.

        Required servers, servers whose tools are about to be called, and that of apps if the user
        mentions one may take their full time to start. A required server that has ended is started
        again. Return the reason why the turn cannot run, if there is one.
        """
        if self._waited_for != turn.id:
            self._waited_for = turn.id
            for server in list(self._servers.values()):
                if server.config.required and server.has_ended:
                    server.start()
                is_needed = server.config.required or (needs_apps and server.apps is not None)
                is_needed = is_needed or any(is_of(c, server.name) for c in calls)
                await (server.settled() if is_needed else self._wait_briefly(server))
            if errors := [_describe(each) for each in self._servers.values() if each.is_missing]:
                return f"required MCP servers failed to initialize: {', '.join(errors)}"
        return None

    async def arriving(self, tool: str) -> None:
        """Wait for the server that may provide a tool, if it is starting."""
        for server in list(self._servers.values()):
            if is_of(tool, server.name):
                await server.settled()

    async def _wait_briefly(self, server: McpServer) -> None:
        """Wait for an optional server, unless it is known to start slowly."""
        record = self._source.startup_record
        deadline = min(self._deadlines[server.name], record.deadline(server.table))
        if server.status == "starting" and deadline > asyncio.get_running_loop().time():
            try:
                async with asyncio.timeout_at(deadline):
                    await server.settled()
            except TimeoutError:
                record.add_failure(server.table)

    # -- use

    def __iter__(self) -> Iterator[McpServer]:
        return iter(self._servers.values())

    @property
    def has_any(self) -> bool:
        """Whether there is an enabled server."""
        return any(server.status != "disabled" for server in self._servers.values())

    def get(self, name: str) -> McpServer:
        """The server with a name.

        Raises:
            McpError: there is none.
        """
        self.start()
        server = self._servers.get(name)
        if server is None:
            raise McpError(f"unknown MCP server '{name}'")
        return server

    def tools(self) -> list[NamedMcpTool]:
        """The tools that the model may see now, with their names for the model."""
        return model_tools(self._servers.values())

    def add_instructions(self, turn: ActiveTurn, context: ModelContext) -> None:
        """Add the instructions of servers to the model context, unless it contains them."""
        for server in self._servers.values():
            if not server.offered:
                continue
            texts: list[str] = []
            if server.apps is not None and server.apps.has_instructions:
                texts.append(INSTRUCTIONS)
            if server.instructions is not None:
                texts.append(instructions(server.name, server.instructions))
            known = context.history_of(turn).items
            for note in (message("developer", text) for text in texts):
                if all(item.get("content") != note["content"] for item in known):
                    context.remember(turn, note)

    async def remember(
        self, server: str, tool: str, *, app_id: str | None = None, always: bool
    ) -> None:
        """Approve a tool for this thread, or permanently."""
        self.approved.add((server, tool))
        workers = self.thread.services.file_workers
        if always and await workers.run(self._source.approve_always, server, tool, app_id):
            self._is_current = False

    @contextmanager
    def calling(self, server: McpServer, call_id: str) -> Iterator[None]:
        """Register a running call, to which elicitations of the server may belong."""
        calls = self._calls.setdefault(server.name, [])
        calls.append(call_id)
        try:
            yield
        finally:
            calls.remove(call_id)

    @property
    def thread(self) -> ThreadState:
        """The thread that uses the servers.

        Raises:
            McpError: there is none.
        """
        if self._thread is None:
            raise McpError("no thread uses these MCP servers")
        return self._thread

    # -- implementation

    def _apply(self, config: McpConfig, *, announces: bool) -> None:
        self._grace_seconds = config.grace_seconds
        tables = {name: table for name, table in config.servers.items() if name != APPS}
        if config.apps is not None:
            tables[APPS] = config.apps.table
        for name, server in list(self._servers.items()):
            if not _is_same(server, tables.get(name), config):
                server.close()
                del self._servers[name]
                continue
            if name == APPS:
                server.apps = config.apps
            if server.status == "connected" and announces:
                # Clients that requested a reload wait for this status.
                self._publish(StatusChange(name, "ready"))
        for name in sorted(tables):
            if name not in self._servers:
                table = tables[name]
                apps = config.apps if name == APPS else None
                context, plugin = self._context(name, table, apps), config.plugins.get(name)
                server = McpServer(name, table, context, plugin)
                self._servers[name] = server
                self._start(server)

    def _start(self, server: McpServer) -> None:
        now = asyncio.get_running_loop().time()
        deadline = now + self._grace_seconds
        if server.apps is not None:
            self._apps_retry_at = now + APPS_RETRY_SECONDS
        self._deadlines[server.name] = deadline
        self._source.startup_record.add_start(server.table, deadline)
        server.start()

    def _context(self, name: str, table: JsonValue, apps: HostedApps | None) -> ServerContext:
        thread = self._thread
        return ServerContext(
            cwd=thread.settings.cwd if thread is not None else working_folder(),
            environ=self._environ(),
            tasks=self._tasks,
            sandbox=self._sandbox,
            tokens=self.tokens,
            elicit=partial(self._elicit, name),
            on_change=partial(self._on_change, table),
            apps=apps,
        )

    def _environ(self) -> Mapping[str, str]:
        """The environment of servers, in which trusted folders of `PATH` come first.

        Servers run outside the sandbox, so their names should not resolve to programs that commands
        wrote. Folders that commands can write come last: the server itself may be there.
        """
        environ, thread = self._source.environ, self._thread
        path, boundary = environ.get("PATH"), self._boundary
        if path is None:
            return environ
        # Without a thread, only what commands of threads can have written counts.
        confinement = Confinement()
        if thread is not None:
            boundary = thread.services.boundary
            confinement = boundary.confine(thread.settings.sandbox, thread.settings.cwd)
        if boundary is None:
            return environ
        trusted = boundary.trusted_path(path, confinement).split(os.pathsep)
        folders = dict.fromkeys([*filter(None, trusted), *path.split(os.pathsep)])
        return {**environ, "PATH": os.pathsep.join(folders)}

    def _on_change(self, table: JsonValue, change: StatusChange) -> None:
        is_in_time = asyncio.get_running_loop().time() <= self._deadlines[change.name]
        if change.status == "failed":
            self._source.startup_record.add_failure(table)
        elif change.status == "ready" and is_in_time:
            self._source.startup_record.add_success(table)
        self._publish(change)

    def _publish(self, change: StatusChange) -> None:
        if self._thread is not None and not self._is_closed:
            self._thread.log.publish(
                n.MCP_SERVER_STARTUP_STATUS_UPDATED,
                McpServerStatusUpdatedNotification(
                    name=change.name,
                    status=change.status,
                    error=change.error,
                    failure_reason=change.reason,
                    thread_id=self._thread.id,
                ),
            )

    async def _elicit(self, server: str, params: Raw) -> Raw:
        if self._thread is None:
            return DECLINED
        # The protocol does not say which call an elicitation belongs to: assume the last one. If
        # there is none, it may belong to a call of a client.
        calls = self._calls.get(server)
        call_id = calls[-1] if calls else None
        key = f"{call_id or server}/{next(self._ids)}"
        return await elicit(self._thread, server, call_id, key, params)


def _is_same(server: McpServer, table: JsonValue, config: McpConfig) -> bool:
    """Whether a running server is the configured one: apps also are those of one account."""
    if server.name == APPS:
        account = config.apps.account if config.apps is not None else None
        if server.apps is None or server.apps.account != account:
            return False
    return server.table == table and server.plugin == config.plugins.get(server.name)


def _describe(server: McpServer) -> str:
    return f"{server.name}: {(server.error or server.status).removeprefix(STARTUP_PREFIX)}"


def instructions(server: str, text: str) -> str:
    """The instructions of a server as text for the model."""
    tag = "mcp_server_instructions"
    return f'<{tag} server="{server}">\n{truncate(text, INSTRUCTION_TOKENS)}\n</{tag}>'


@asynccontextmanager
async def temporary_servers(
    source: McpSource,
    *,
    tasks: BackgroundTasks,
    home: Path,
    sandbox: Sandbox,
    boundary: Boundary,
) -> AsyncIterator[McpServers]:
    """The configured servers, started for the duration of the block."""
    servers = McpServers(source, tasks=tasks, home=home, sandbox=sandbox, boundary=boundary)
    servers.start()
    try:
        yield servers
    finally:
        servers.close()
        await servers.closed()
