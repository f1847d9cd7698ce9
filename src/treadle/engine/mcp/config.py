"""The configuration of MCP servers: `mcp_servers.<name>` of `config.toml`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from treadle.engine.apps.policy import AppsPolicy
from treadle.engine.mcp.startup import StartupRecord
from treadle.engine.settings import RunSettings
from treadle.model.provider import Bearer
from treadle.protocol.base import JsonValue, UInt16

STARTUP_SECONDS: Final = 30.0
TOOL_SECONDS: Final = 120.0
GRACE_SECONDS: Final = 1.0
"""How long a turn waits for optional servers."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_:@/.-]+")
# Variables that every server inherits, besides those in its configuration.
INHERITED: Final = "HOME LOGNAME PATH SHELL USER LANG LC_ALL TERM TMPDIR TZ".split()

ApprovalMode: TypeAlias = Literal["auto", "prompt", "writes", "approve"]
"""`auto` uses the hints of the tool, `writes` requires approval unless the tool only reads."""


class ToolConfig(msgspec.Struct, frozen=True):
    """The configuration of one tool."""

    approval_mode: ApprovalMode | None = None


class EnvVar(msgspec.Struct, frozen=True):
    """A variable that a server inherits."""

    name: str


class OAuthConfig(msgspec.Struct, frozen=True):
    """The OAuth client, if it was registered by hand."""

    client_id: str | None = None


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One server: a command to run, or a URL."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)
    env_vars: tuple[str | EnvVar, ...] = ()
    cwd: str | None = None
    url: str | None = None
    bearer_token_env_var: str | None = None
    http_headers: dict[str, str] = msgspec.field(default_factory=dict)
    env_http_headers: dict[str, str] = msgspec.field(default_factory=dict)
    scopes: tuple[str, ...] | None = None
    oauth: OAuthConfig | None = None
    enabled: bool = True
    required: bool = False
    startup_timeout_sec: float | None = None
    startup_timeout_ms: float | None = None
    tool_timeout_sec: float | None = None
    enabled_tools: tuple[str, ...] | None = None
    disabled_tools: tuple[str, ...] = ()
    supports_parallel_tool_calls: bool = False
    default_tools_approval_mode: ApprovalMode | None = None
    tools: dict[str, ToolConfig] = msgspec.field(default_factory=dict)

    @property
    def startup_seconds(self) -> float:
        """How long the server may take to start."""
        if self.startup_timeout_sec is None and self.startup_timeout_ms is not None:
            return self.startup_timeout_ms / 1000
        return STARTUP_SECONDS if self.startup_timeout_sec is None else self.startup_timeout_sec

    @property
    def tool_seconds(self) -> float:
        """How long a call of a tool may take."""
        return TOOL_SECONDS if self.tool_timeout_sec is None else self.tool_timeout_sec

    def offers(self, tool: str) -> bool:
        """Whether the model may see a tool."""
        is_enabled = self.enabled_tools is None or tool in self.enabled_tools
        return is_enabled and tool not in self.disabled_tools

    def approval_mode(self, tool: str) -> ApprovalMode:
        """When calls of a tool require approval."""
        own = self.tools.get(tool)
        return (own and own.approval_mode) or self.default_tools_approval_mode or "auto"

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of the server's process: inherited and configured variables."""
        named = [each if isinstance(each, str) else each.name for each in self.env_vars]
        inherited = {name: environ[name] for name in (*INHERITED, *named) if name in environ}
        return {**inherited, **self.env}

    def headers(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The headers of requests to the server, with its token.

        Raises:
            BadServer: the variable of the token is not set.
        """
        from_environ = {
            name: environ[variable]
            for name, variable in self.env_http_headers.items()
            if environ.get(variable)
        }
        headers = {**self.http_headers, **from_environ}
        variable = self.bearer_token_env_var
        if variable is not None:
            if not environ.get(variable):
                raise BadServer(f"environment variable {variable} is not set")
            headers["Authorization"] = f"Bearer {environ[variable]}"
        return headers

    @property
    def has_own_login(self) -> bool:
        """Whether credentials are configured, so that no login is needed."""
        names = {name.lower() for name in (*self.http_headers, *self.env_http_headers)}
        return self.bearer_token_env_var is not None or "authorization" in names


class PluginOfServer(msgspec.Struct, frozen=True):
    """The plugin that provides a server: its id, and its name for models."""

    id: str
    title: str


AccountLogin: TypeAlias = Callable[[Bearer | None], Awaitable[Bearer | None]]
"""Returns the login of one account; after a rejection, a new one, if there is any."""


class HostedApps(msgspec.Struct, frozen=True, kw_only=True):
    """The MCP server with the tools of an account's apps."""

    # Its configuration, without the login.
    table: dict[str, JsonValue]
    # Identifies the account; not a secret.
    account: str
    login: AccountLogin
    policy: AppsPolicy
    # Whether models receive instructions about apps.
    has_instructions: bool = True


class McpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of a thread, and the options for all of them."""

    servers: dict[str, JsonValue] = msgspec.field(default_factory=dict)
    plugins: dict[str, PluginOfServer] = msgspec.field(default_factory=dict)
    apps: HostedApps | None = None
    grace_seconds: float = GRACE_SECONDS
    callback_port: UInt16 | None = None
    callback_url: str | None = None


class McpSource(Protocol):
    """Where the configuration of MCP servers comes from."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment with tokens and inherited variables."""
        ...

    @property
    def startup_record(self) -> StartupRecord:
        """How earlier starts of servers went, shared by all threads."""
        ...

    def config(self, settings: RunSettings | None) -> McpConfig:
        """The servers of a thread with these settings, or those without a thread."""
        ...

    def account(self, settings: RunSettings | None) -> str | None:
        """The account whose apps a thread with these settings may use, if there is one."""
        ...

    def approve_always(self, server: str, tool: str, app_id: str | None = None) -> bool:
        """Store that a tool needs no approval any more; false if that is impossible."""
        ...


class BadServer(Exception):
    """The configuration of a server is invalid."""


def read_server(name: str, table: JsonValue) -> ServerConfig:
    """Read the configuration of one server.

    Raises:
        BadServer: it is invalid; the message says why.
    """
    if not _NAME.fullmatch(name):
        raise BadServer(f"Invalid MCP server name '{name}': must match pattern ^{_NAME.pattern}$")
    try:
        config = msgspec.convert(table, ServerConfig, strict=True)
    except msgspec.ValidationError as error:
        raise BadServer(f"invalid configuration: {error}") from error
    if config.command is not None and config.url is not None:
        raise BadServer("url is not supported for stdio")
    if not config.command and not config.url:
        raise BadServer("invalid transport")
    return config
