"""Keyword arguments of the client, its threads, turns and commands; converts them to params."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias, TypedDict

import msgspec
from msgspec import UnsetType

from treadle.client._runtime.reconnect import Backoff
from treadle.client.approvals import ApprovalPolicy
from treadle.client.tools import ToolLike
from treadle.protocol.aliases import rewrite
from treadle.protocol.base import JsonValue
from treadle.protocol.collaboration import CollaborationMode, MultiAgentMode
from treadle.protocol.environment import TurnEnvironmentParams
from treadle.protocol.extension import Budget
from treadle.protocol.input import (
    AdditionalContextEntry,
    LocalImageUserInput,
    TextUserInput,
    UserInput,
)
from treadle.protocol.model import (
    CyberAccessProgram,
    Personality,
    ReasoningEffort,
    ReasoningSummary,
)
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxMode, SandboxPolicy
from treadle.protocol.response_item import ResponseItem
from treadle.protocol.source import ThreadSource
from treadle.protocol.thread import (
    SelectedCapabilityRoot,
    ThreadHistoryMode,
    ThreadResumeInitialTurnsPageParams,
    ThreadStartSource,
)
from treadle.protocol.tool import TurnToolOutput


class ClientDefault(Enum):
    """The type of `CLIENT_DEFAULT`."""

    CLIENT_DEFAULT = "the client's value"


CLIENT_DEFAULT: Final = ClientDefault.CLIENT_DEFAULT
"""Selects the value that the client was created with; `None` means no limit."""

IdleTimeout: TypeAlias = float | ClientDefault | None
"""Seconds without an event before a turn is given up."""


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of a client."""

    token: str | None
    """The bearer token of a WebSocket server."""
    cwd: str | Path | None
    """Folder of new threads and of a server process. Defaults to the current folder."""
    env: Mapping[str, str] | None
    """Environment variables of a server process, in addition to those of this process."""
    client_name: str
    client_version: str
    client_title: str
    model: str | None
    """Model of new threads. Defaults to the server's configuration."""
    approval_policy: AskForApproval | str | None
    """For new threads. Defaults to `on-request` with an approval handler, else to `never`."""
    sandbox: SandboxMode | str | None
    """For new threads. Defaults to `workspace-write`."""
    experimental_api: bool
    """Defaults to true: without it the server refuses client tools and many other features."""
    approvals: ApprovalPolicy | None
    """Answers server requests; `on_command_approval` and its siblings override parts of it."""
    tools: Sequence[ToolLike]
    """Functions that the model may call in new threads."""
    request_timeout: float | None
    """Seconds to wait for an answer. Defaults to 30."""
    turn_idle_timeout: float | None
    """Idle timeout of turns in seconds, suspended during server requests. Defaults to 300."""
    reconnect: bool | Backoff
    """Reconnect after a lost connection. Defaults to true for sockets, false for a process."""
    opt_out: Sequence[str]
    """Methods of notifications that the server does not send to this client."""


class _Settings(TypedDict, total=False):
    approval_policy: AskForApproval | str | None
    approvals_reviewer: ApprovalsReviewer | None
    base_instructions: str | None
    config: dict[str, JsonValue] | None
    cwd: str | Path | None
    developer_instructions: str | None
    model: str | None
    model_provider: str | None
    permissions: str | None
    persist_extended_history: bool
    runtime_workspace_roots: list[str] | None
    sandbox: SandboxMode | str | None
    service_tier: str | UnsetType | None


class ThreadOptions(_Settings, total=False):
    """Options of `start_thread`: the fields of `thread/start`."""

    allow_provider_model_fallback: bool
    budget: Budget | None
    daybreak_enabled: bool | None
    environments: list[TurnEnvironmentParams] | None
    ephemeral: bool | None
    experimental_raw_events: bool
    history_mode: ThreadHistoryMode | None
    metadata: dict[str, JsonValue] | None
    mock_experimental_field: str | None
    multi_agent_mode: MultiAgentMode | None
    personality: Personality | None
    project_id: str | None
    selected_capability_roots: list[SelectedCapabilityRoot] | None
    service_name: str | None
    session_start_source: ThreadStartSource | None
    thread_source: ThreadSource | None


class ResumeOptions(_Settings, total=False):
    """Options of `resume_thread`: the fields of `thread/resume`."""

    after_seq: int | None
    exclude_turns: bool
    history: list[ResponseItem] | None
    initial_turns_page: ThreadResumeInitialTurnsPageParams | None
    path: str | None
    personality: Personality | None


class ForkOptions(_Settings, total=False):
    """Options of `fork_thread`: the fields of `thread/fork`."""

    attach_to_source: bool
    before_turn_id: str | None
    defer_goal_continuation: bool
    ephemeral: bool
    exclude_turns: bool
    experimental_disable_prediction_mcp: bool
    experimental_prediction_mode: bool
    last_turn_id: str | None
    path: str | None
    thread_source: ThreadSource | None


class TurnOptions(TypedDict, total=False):
    """Options of a turn: the fields of `turn/start`."""

    additional_context: dict[str, AdditionalContextEntry] | None
    approval_policy: AskForApproval | str | None
    approvals_reviewer: ApprovalsReviewer | None
    budget: Budget | None
    client_user_message_id: str | None
    collaboration_mode: CollaborationMode | None
    cwd: str | Path | None
    cyber_access_program: CyberAccessProgram | None
    disabled_plugin_ids: list[str] | None
    effort: ReasoningEffort | None
    environments: list[TurnEnvironmentParams] | None
    model: str | None
    multi_agent_mode: MultiAgentMode | None
    output_schema: JsonValue
    parent_turn_id: str | None
    permissions: str | None
    personality: Personality | None
    responsesapi_client_metadata: dict[str, str] | None
    responsesapi_client_metadata_patch: dict[str, str] | None
    root_turn_id: str | None
    runtime_workspace_roots: list[str] | None
    sandbox_policy: SandboxPolicy | str | dict[str, JsonValue] | None
    service_tier: str | UnsetType | None
    service_tier_for_turn: str | None
    summary: ReasoningSummary | None
    tool_output: TurnToolOutput | None
    turn_trigger: str | None


class CommandOptions(TypedDict, total=False):
    """Options of a command: the fields of `command/exec`."""

    cwd: str | Path | None
    disable_output_cap: bool
    disable_timeout: bool
    env: dict[str, str | None] | None
    output_bytes_cap: int | None
    permission_profile: str | None
    sandbox_policy: SandboxPolicy | str | dict[str, JsonValue] | None
    timeout_ms: int | None


Input: TypeAlias = str | Path | UserInput | Sequence[str | Path | UserInput]
"""Text, the path of an image, an input of the protocol, or a sequence of these."""

_WIRE_NAMES: Final = {"approval_policy": "approvalPolicy", "sandbox": "sandbox"}
_OLD_APPROVAL_POLICIES: Final = {"always": "untrusted"}


def inputs_of(value: Input) -> list[UserInput]:
    """Convert the input of a turn to the protocol's types.

    Raises:
        TypeError: the value, or a part of it, is not an input.
    """
    parts: JsonValue = value
    is_many = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return [_input(part) for part in (parts if is_many else [parts])]


def _input(part: JsonValue) -> UserInput:
    if isinstance(part, str):
        return TextUserInput(text=part)
    if isinstance(part, Path):
        return LocalImageUserInput(path=str(part))
    is_input = isinstance(part, msgspec.Struct)
    if not is_input:
        raise TypeError(f"a turn takes text, the Path of an image or an input, not {part!r}")
    checked: UserInput = part  # for mypy: the value itself is checked by the server
    return checked


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Reject unknown options.

    Raises:
        TypeError: an option is unknown.
    """
    if unknown := sorted(set(names) - set(known)):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")


def to_fields(options: JsonValue) -> dict[str, JsonValue]:
    """Convert options to fields of params: paths, policies, older and documented spellings."""
    fields = {name: str(each) if isinstance(each, Path) else each for name, each in options.items()}
    for name, wire_name in _WIRE_NAMES.items():
        value = fields.get(name)
        if isinstance(value, str):
            fields[name] = (
                _OLD_APPROVAL_POLICIES.get(value) or rewrite({wire_name: value})[wire_name]
            )
    policy = fields.get("sandbox_policy")
    if isinstance(policy, str | dict):
        document = rewrite({"sandboxPolicy": policy})["sandboxPolicy"]
        fields["sandbox_policy"] = msgspec.convert(document, SandboxPolicy)
    return fields
