"""How the adapter is set up: the server, the model, and who signs in."""

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
"""When the server asks before it acts."""
SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
ReasoningSummary: TypeAlias = Literal["auto", "concise", "detailed", "none"]
Personality: TypeAlias = Literal["none", "friendly", "pragmatic"]
McpServerConfig: TypeAlias = dict[str, JsonValue]
"""An MCP server: `command` and `args`, or `url`."""

_UNSUPPORTED: Final = ("seed", "stop", "presence_penalty", "frequency_penalty")


@dataclass(frozen=True, slots=True)
class ApiKeyAuth:
    """Signs in with an API key; a server that is started here keeps it in memory only."""

    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExternalTokenAuth:
    """Signs in with ChatGPT tokens that the caller owns and renews.

    `refresh` is called with the reason when the tokens were refused, and gives new ones. Account
    and plan are read from the tokens if they are not given.
    """

    id_token: str = field(repr=False)
    access_token: str = field(repr=False)
    account_id: str | None = None
    plan_type: str | None = None
    refresh: Callable[[str], ExternalTokenAuth] | None = field(default=None, repr=False)


CodexAuthMode: TypeAlias = ApiKeyAuth | ExternalTokenAuth


@dataclass(frozen=True, slots=True)
class CodexAppServerClientConfig:
    """The server, and what it may do."""

    codex_bin: str | Sequence[str] = "codex"
    """A program (`codex`, `treadle`, a path), a whole command, or the URL of a server that runs."""
    cwd: str | None = None
    """Where the agent works, absolute; else the prompt's workspace, else the current folder."""
    env: Mapping[str, str] | None = None
    """What the server gets on top of this process's environment."""
    suppress_stderr: bool = True
    """Keep the server's stderr for error reports; otherwise it is printed too."""
    startup_timeout_s: float = 10.0
    approval_policy: ApprovalPolicy = "never"
    sandbox_mode: SandboxMode | None = None
    """The server's configuration decides if not given."""
    auth_mode: CodexAuthMode | None = None
    """The server's own credentials are used if not given."""
    reuse_thread: bool = False
    """Go on with the session's thread if folder, workspace and tools are still the same."""
    mcp_servers: Mapping[str, McpServerConfig] | None = None
    ephemeral: bool = False
    """Threads are not written to disk."""
    client_name: str = "wink"
    client_version: str = "0.1.0"
    transcript: bool = True
    transcript_emit_raw: bool = True
    approvals: Approvals | None = None
    """Decides what the server asks about; without it, the approval policy implies an answer."""
    sandbox_policy: SandboxPolicy | str | dict[str, JsonValue] | None = None
    """The sandbox of each turn in full: writable folders, network and so on."""
    config: Mapping[str, JsonValue] | None = None
    """Further settings for the thread, as in `config.toml`."""
    request_timeout_s: float = 30.0
    interrupt_grace_s: float = 2.0
    """How long a turn may take to stop before the server is killed."""
    turn_silence_s: float | None = None
    """How long a turn may say nothing while no tool runs; for ever if not given."""
    max_continuations: int = 10
    """How many more turns a prompt's completion checker may ask for."""
    keep_warm: bool = True
    """Keep the server for the next evaluation, until `close`."""

    def __post_init__(self) -> None:
        if self.cwd is not None and not Path(self.cwd).is_absolute():
            raise ValueError(f"cwd must be absolute: {self.cwd!r}")


@dataclass(frozen=True, slots=True, init=False)
class CodexAppServerModelConfig:
    """The model, and how it thinks."""

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
        """Take `None` as the model for the one that the server is configured with.

        Raises:
            ValueError: an option that the protocol has no place for.
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
