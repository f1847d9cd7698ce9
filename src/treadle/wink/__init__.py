"""The WINK adapter: evaluates prompts of `weakincentives` with an app-server.

Needs the extra `wink` and Python 3.12.3 or newer, as `weakincentives` does.
"""

from __future__ import annotations

from treadle.wink.adapter import CodexAppServerAdapter
from treadle.wink.config import (
    ApiKeyAuth,
    ApprovalPolicy,
    CodexAppServerClientConfig,
    CodexAppServerModelConfig,
    CodexAuthMode,
    ExternalTokenAuth,
    McpServerConfig,
    Personality,
    ReasoningEffort,
    ReasoningSummary,
    SandboxMode,
)
from treadle.wink.context import ADAPTER_NAME as CODEX_APP_SERVER_ADAPTER_NAME
from treadle.wink.errors import PromptDeadlineExceeded
from treadle.wink.state import CodexAppServerSessionState
from treadle.wink.turn import RunningTurn
from treadle.wink.workspace import (
    CodexWorkspaceSection,
    HostMount,
    HostMountPreview,
    WorkspaceBudgetExceededError,
    WorkspaceSecurityError,
)

__all__ = [
    "CODEX_APP_SERVER_ADAPTER_NAME",
    "ApiKeyAuth",
    "ApprovalPolicy",
    "CodexAppServerAdapter",
    "CodexAppServerClientConfig",
    "CodexAppServerModelConfig",
    "CodexAppServerSessionState",
    "CodexAuthMode",
    "CodexWorkspaceSection",
    "ExternalTokenAuth",
    "HostMount",
    "HostMountPreview",
    "McpServerConfig",
    "Personality",
    "PromptDeadlineExceeded",
    "ReasoningEffort",
    "ReasoningSummary",
    "RunningTurn",
    "SandboxMode",
    "WorkspaceBudgetExceededError",
    "WorkspaceSecurityError",
]
