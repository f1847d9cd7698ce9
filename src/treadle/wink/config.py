"""The adapter's configuration: the server, the model and the credentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from treadle.client.approvals import ApprovalPolicy as Approvals
from treadle.protocol.base import JsonValue
from treadle.protocol.policy import GranularAskForApproval, SandboxPolicy

ApprovalPolicy: TypeAlias = (
    Literal["never", "untrusted", "on-failure", "on-request"] | GranularAskForApproval
)
"""When the server requests approval."""
SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
ReasoningSummary: TypeAlias = Literal["auto", "concise", "detailed", "none"]
Personality: TypeAlias = Literal["none", "friendly", "pragmatic"]
McpServerConfig: TypeAlias = dict[str, JsonValue]
"""An MCP server: `command` and `args`, or `url`."""

_UNSUPPORTED: Final = ("seed", "stop", "presence_penalty", "frequency_penalty")


@dataclass(frozen=True, slots=True)
class ApiKeyAuth:
    """Login with an API key; a server that the adapter starts keeps it in memory only."""

    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExternalTokenAuth:
    """Login with ChatGPT tokens that the caller owns and refreshes.

    `refresh` is called with the reason when the tokens were refused, and returns new ones. Account
    and plan default to those in the tokens.
    """

    id_token: str = field(repr=False)
    access_token: str = field(repr=False)
    account_id: str | None = None
    plan_type: str | None = None
    refresh: Callable[[str], ExternalTokenAuth] | None = field(default=None, repr=False)


CodexAuthMode: TypeAlias = ApiKeyAuth | ExternalTokenAuth


@dataclass(frozen=True, slots=True)
class CodexAppServerClientConfig:
    """The configuration of the server and its permissions."""

    codex_bin: str | Sequence[str] = "codex"
    """A program (`codex`, `treadle`, a path), a whole command, or the URL of a running server."""
    cwd: str | None = None
    """The agent's folder, absolute. Defaults to the prompt's workspace or the current folder."""
    env: Mapping[str, str] | None = None
    """Variables that the server gets in addition to this process's environment."""
    suppress_stderr: bool = True
    """Keep the server's stderr for error reports; otherwise it is printed too."""
    startup_timeout_s: float = 10.0
    approval_policy: ApprovalPolicy = "never"
    sandbox_mode: SandboxMode | None = None
    """Defaults to the server's configuration."""
    auth_mode: CodexAuthMode | None = None
    """Defaults to the server's own credentials."""
    reuse_thread: bool = False
    """Resume the session's thread if folder, workspace and tools are unchanged."""
    mcp_servers: Mapping[str, McpServerConfig] | None = None
    ephemeral: bool = False
    """Threads are not written to disk."""
    client_name: str = "wink"
    client_version: str = "0.1.0"
    transcript: bool = True
    transcript_emit_raw: bool = True
    approvals: Approvals | None = None
    """Decides about server requests. Defaults to an answer that the approval policy implies."""
    sandbox_policy: SandboxPolicy | str | dict[str, JsonValue] | None = None
    """The full sandbox policy of each turn: writable folders, network and so on."""
    config: Mapping[str, JsonValue] | None = None
    """Further settings for the thread, as in `config.toml`."""
    request_timeout_s: float = 30.0
    interrupt_grace_s: float = 2.0
    """Time for an interrupted turn to stop before the server is killed."""
    turn_idle_timeout_s: float | None = None
    """Idle timeout of a turn while no tool runs. Defaults to none."""
    max_continuations: int = 10
    """Maximum number of further turns that a prompt's completion checker may request."""
    keep_warm: bool = True
    """Keep the server for the next evaluation, until `close`."""

    def __post_init__(self) -> None:
        if self.cwd is not None and not Path(self.cwd).is_absolute():
            raise ValueError(f"cwd must be absolute: {self.cwd!r}")


@dataclass(frozen=True, slots=True, init=False)
class CodexAppServerModelConfig:
    """The model and its reasoning options."""

    model: str | None
    effort: ReasoningEffort | None
    summary: ReasoningSummary | None
    personality: Personality | None

    def __init__(
        self,
        model: str | None = "gpt-5.1-codex",
        effort: ReasoningEffort | None = None,
        summary: ReasoningSummary | None = None,
        personality: Personality | None = None,
        **unsupported: object,
    ) -> None:
        """Take `None` as the model to use the server's configured one.

        Raises:
            ValueError: an option that the protocol does not support.
        """
        known = sorted(name for name in unsupported if name in _UNSUPPORTED)
        if known:
            raise ValueError(f"the app-server protocol does not support {', '.join(known)}")
        if unsupported:
            raise TypeError(f"unexpected options: {', '.join(sorted(unsupported))}")
        for name, value in (
            ("model", model),
            ("effort", effort),
            ("summary", summary),
            ("personality", personality),
        ):
            object.__setattr__(self, name, value)
