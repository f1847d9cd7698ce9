"""Requests older than version 2 of the protocol, which clients in the field still send.

The reference keeps them out of its JSON Schemas and in its TypeScript.
"""

from __future__ import annotations

from typing import Final, Literal

from treadle.protocol.account import AuthMode
from treadle.protocol.base import OneOf, Params, SnakeOneOf, SnakeValue, ThreadId, Value
from treadle.protocol.method import Request, index
from treadle.protocol.source import SubAgentSource


class GetAuthStatusParams(Params, frozen=True):
    """Read how the server is signed in, with the token itself on request."""

    include_token: bool | None = None
    refresh_token: bool | None = None


class GetAuthStatusResponse(Value, frozen=True):
    """How the server is signed in; nulls while it is signed out."""

    auth_method: AuthMode | None = None
    auth_token: str | None = None
    requires_openai_auth: bool | None = None


class GetConversationSummaryParams(OneOf, frozen=True):
    """Identify a stored thread by its rollout file or by its id."""

    rollout_path: str | None = None
    conversation_id: ThreadId | None = None


InternalSessionSource = Literal["memory_consolidation", "guardian"]


class LegacySessionSourceDetail(SnakeOneOf, frozen=True):
    """An origin that carries data."""

    custom: str | None = None
    internal: InternalSessionSource | None = None
    subagent: SubAgentSource | None = None


LegacySessionSource = Literal["cli", "vscode", "exec", "mcp", "unknown"] | LegacySessionSourceDetail
"""The origin of a stored thread, as spelled in rollout files."""


class ConversationGitInfo(SnakeValue, frozen=True):
    """The commit, branch and origin at the start of a stored thread."""

    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class ConversationSummary(Value, frozen=True):
    """A stored thread as shown in a list; the times are RFC 3339 text."""

    conversation_id: ThreadId
    path: str
    preview: str
    model_provider: str
    cwd: str
    cli_version: str
    source: LegacySessionSource
    timestamp: str | None = None
    updated_at: str | None = None
    git_info: ConversationGitInfo | None = None


class GetConversationSummaryResponse(Value, frozen=True):
    """The summary of the requested thread."""

    summary: ConversationSummary


GitSha = str


class GitDiffToRemoteParams(Params, frozen=True):
    """Compare a folder's working tree with its closest commit on a remote."""

    cwd: str


class GitDiffToRemoteResponse(Value, frozen=True):
    """The remote commit and the difference from it, including untracked files."""

    sha: GitSha
    diff: str


GET_CONVERSATION_SUMMARY = Request(
    "getConversationSummary",
    GetConversationSummaryParams,
    GetConversationSummaryResponse,
    call="get_conversation_summary",
)
GIT_DIFF_TO_REMOTE = Request(
    "gitDiffToRemote", GitDiffToRemoteParams, GitDiffToRemoteResponse, call="diff_to_remote"
)
GET_AUTH_STATUS = Request(
    "getAuthStatus", GetAuthStatusParams, GetAuthStatusResponse, call="get_auth_status"
)

LEGACY_REQUESTS: Final = index(globals(), Request)
