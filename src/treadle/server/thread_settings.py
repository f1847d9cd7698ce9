"""Initial settings of a thread: the request over the stored settings over the configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from treadle.config.configuration import Configuration
from treadle.config.effective import EffectiveConfig
from treadle.config.file import ConfigError
from treadle.config.managed.requirements import is_allowed, refuse_disallowed
from treadle.config.permissions import mode_of
from treadle.engine.errors import InvalidInput
from treadle.engine.settings import AgentLimits, Profile, RunSettings
from treadle.engine.stored.permissions import restore_permissions
from treadle.engine.terminals.shell import ShellSettings
from treadle.engine.tools.dynamic import check_tools
from treadle.protocol.base import JsonValue
from treadle.protocol.config import WebSearchToolConfig
from treadle.protocol.policy import (
    ReadOnlyAccess,
    ReadOnlySandboxPolicy,
    RestrictedReadOnlyAccess,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.protocol.requirements import ConfigRequirements
from treadle.protocol.settings import ThreadSettingsUpdateParams
from treadle.protocol.thread import ThreadForkParams, ThreadResumeParams, ThreadStartParams
from treadle.protocol.turn import TurnStartParams
from treadle.sandbox.root_limits import roots_fault
from treadle.server.folder_limits import check_folder
from treadle.server.query_limits import check_texts
from treadle.server.settings_reload import differing
from treadle.store.records import TurnContext
from treadle.store.stored_thread import StoredThread
from treadle.support.files.working_folder import absolute

ThreadParams: TypeAlias = ThreadStartParams | ThreadResumeParams | ThreadForkParams


def start_settings(
    configuration: Configuration, params: ThreadStartParams
) -> tuple[RunSettings, EffectiveConfig]:
    """Return the settings of a new thread, and the configuration behind them.

    Raises:
        InvalidInput: a text of the request is too long, or the request contradicts itself.
    """
    check_texts(params)
    cwd = working_folder(params.cwd)
    effective = configuration.effective(cwd, params.config)
    settings = configured(effective, cwd, params.config)
    settings = replace(settings, publishes_raw_events=params.experimental_raw_events)
    return _override(effective, settings, params), effective


def stored_settings(
    configuration: Configuration,
    stored: StoredThread,
    params: ThreadResumeParams | ThreadForkParams,
) -> RunSettings:
    """Return the settings of a stored thread, overridden by the request.

    Naming a model or a provider discards the stored ones, including the effort.

    Raises:
        InvalidInput: a text of the request is too long, or the request contradicts itself.
    """
    check_texts(params)
    meta, last = stored.meta, stored.pending_settings or stored.settings
    cwd = working_folder(params.cwd) if params.cwd else _absolute(last.cwd if last else meta.cwd)
    effective = configuration.effective(cwd, params.config)
    settings = current = configured(effective, cwd, params.config)
    is_other_model = params.model or params.model_provider or _names_model(params.config)
    if not is_other_model:
        settings = replace(
            settings,
            model=(last.model if last else meta.model) or settings.model,
            model_provider=last.provider if last else meta.model_provider,
            effort=last.effort if last else meta.reasoning_effort,
        )
    if last is not None:
        settings = _restore(effective, settings, last)
    settings = replace(settings, client_choices=differing(settings, current))
    settings = replace(
        settings,
        base_instructions=meta.base_instructions or settings.base_instructions,
        developer_instructions=meta.developer_instructions or settings.developer_instructions,
        dynamic_tools=tuple(meta.dynamic_tools or ()),
    )
    if params.cwd and last is not None and cwd != _absolute(last.cwd):
        settings = replace(settings, has_own_folder=True)
    return _override(effective, settings, params)


def working_folder(cwd: str | None) -> str:
    """Return a client's folder as an absolute path; defaults to the server's own.

    Raises:
        InvalidInput: the path is too long or too deep.
    """
    check_folder(cwd)
    return _absolute(cwd or ".")


def _absolute(cwd: str) -> str:
    return os.path.normpath(absolute(cwd))


def check_turn(
    configuration: Configuration, params: TurnStartParams | ThreadSettingsUpdateParams
) -> None:
    """Reject overrides of a turn that the administrator does not allow.

    Raises:
        ConfigError: an override is not allowed.
        InvalidInput: a text or the folder is too long, or the policy names too many folders.
    """
    check_folder(params.cwd)
    check_texts(params)
    check_policy(params.sandbox_policy)
    refuse_disallowed(
        configuration.requirements(),
        {
            "approval_policy": params.approval_policy,
            "approvals_reviewer": params.approvals_reviewer,
            "sandbox_mode": mode_of(params.sandbox_policy),
        },
    )


def check_policy(policy: SandboxPolicy | None) -> None:
    """Check the number and depth of the folders in a policy before any of them is examined.

    Raises:
        InvalidInput: there are too many, or one of them is too long or too deep.
    """
    access: ReadOnlyAccess | UnsetType | None = None
    field = "access"
    if isinstance(policy, WorkspaceWriteSandboxPolicy):
        _check_roots(policy.writable_roots, "sandboxPolicy.writableRoots")
        access, field = policy.read_only_access, "readOnlyAccess"
    elif isinstance(policy, ReadOnlySandboxPolicy):
        access = policy.access
    if isinstance(access, RestrictedReadOnlyAccess):
        _check_roots(access.readable_roots, f"sandboxPolicy.{field}.readableRoots")


def _check_roots(roots: Sequence[str] | None, field: str) -> None:
    if (fault := roots_fault(roots or (), field)) is not None:
        raise InvalidInput(field, fault)


def turn_profile(
    configuration: Configuration, params: TurnStartParams | ThreadSettingsUpdateParams, cwd: str
) -> Profile | None:
    """Return the permission profile that a turn names, seen from the thread's folder.

    Raises:
        InvalidInput: the turn also sets a sandbox policy.
        ConfigError: the profile cannot be enforced.
    """
    if params.permissions is None:
        return None
    if params.sandbox_policy is not None:
        reason = "`permissions` cannot be combined with `sandboxPolicy`"
        raise InvalidInput("permissions", reason)
    return configuration.effective(params.cwd or cwd).permission_profile(params.permissions)


def names_permissions(params: ThreadResumeParams) -> bool:
    """Whether a client chooses what the thread may do."""
    chosen = (params.approval_policy, params.approvals_reviewer, params.cwd)
    return any(value is not None for value in (*chosen, params.permissions, params.sandbox))


def _names_model(config: dict[str, JsonValue] | None) -> bool:
    return bool(config) and any(
        key in (config or {}) for key in ("model", "model_provider", "model_reasoning_effort")
    )


def configured(effective: EffectiveConfig, cwd: str, config: JsonValue) -> RunSettings:
    """Return the settings of a thread that the configuration determines."""
    profile = effective.permission_profile()
    effective.model_catalog()  # a thread does not start with a catalogue that cannot be used
    return RunSettings(
        model=effective.model,
        model_provider=effective.model_provider,
        cwd=cwd,
        approval_policy=effective.approval_policy,
        approvals_reviewer=effective.approvals_reviewer,
        sandbox=effective.sandbox_policy(),
        permission_profile=profile and profile.active,
        network=effective.network(),
        effort=effective.model_reasoning_effort,
        summary=effective.model_reasoning_summary,
        verbosity=effective.model_verbosity,
        personality=effective.personality,
        service_tier=effective.service_tier,
        base_instructions=effective.base_instructions(),
        developer_instructions=effective.developer_instructions,
        context_window=effective.model_context_window,
        auto_compact_limit=effective.model_auto_compact_token_limit,
        request_deadline=effective.asks,
        agents=_agent_limits(effective.agents or {}),
        features=effective.switches,
        shell=ShellSettings(
            allows_login=effective.allow_login_shell,
            environment=effective.shell_environment_policy,
            max_poll_ms=effective.background_terminal_max_timeout,
            max_output_tokens=effective.tool_output_token_limit,
            limits=effective.command_limits(),
        ),
        web_search=effective.web_search,
        web_search_options=_web_search_options(effective.tools),
        config=config,
    )


def _web_search_options(tools: dict[str, JsonValue] | None) -> WebSearchToolConfig | None:
    """Return the web search options; older files have a boolean there."""
    options = (tools or {}).get("web_search")
    if not isinstance(options, dict):
        return None
    try:
        return msgspec.convert(options, WebSearchToolConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error), key="tools.web_search") from error


def _agent_limits(table: Mapping[str, JsonValue]) -> AgentLimits:
    """Return the limits in `[agents]`; other entries of the table are read elsewhere."""
    known = ("max_threads", "max_depth")
    return AgentLimits(**{key: table[key] for key in known if type(table.get(key)) is int})


def _restore(effective: EffectiveConfig, settings: RunSettings, last: TurnContext) -> RunSettings:
    profile = _still_active(effective, last)
    restored = restore_permissions(settings, last, profile)
    return replace(
        limited(effective.requirements, restored, settings),
        summary=last.summary,
        personality=last.personality or settings.personality,
        service_tier=last.service_tier,
        collaboration_mode=last.collaboration_mode,
        disabled_plugin_ids=tuple(last.disabled_plugin_ids),
    )


def limited(
    requirements: ConfigRequirements | None, restored: RunSettings, configured: RunSettings
) -> RunSettings:
    """Return stored permissions, with others in place of those not allowed any more.

    An administrator may have limited them since the thread ran.
    """
    names: list[str] = []
    if not is_allowed(requirements, "approval_policy", restored.approval_policy):
        names.append("approval_policy")
    if not is_allowed(requirements, "approvals_reviewer", restored.approvals_reviewer):
        names.append("approvals_reviewer")
    if not is_allowed(requirements, "sandbox_mode", mode_of(restored.sandbox)):
        names += ("sandbox", "permission_profile", "network")
    if not names:
        return restored
    return replace(restored, **{name: getattr(configured, name) for name in names})


def _still_active(effective: EffectiveConfig, last: TurnContext) -> Profile | None:
    """Return the last turn's profile if its name still has the same meaning."""
    try:
        profile = effective.permission_profile(last.permissions) if last.permissions else None
    except ConfigError:
        return None
    return profile if profile and profile.sandbox == last.sandbox_policy else None


def _override(
    effective: EffectiveConfig, settings: RunSettings, params: ThreadParams
) -> RunSettings:
    """Apply the request's overrides to the settings."""
    overrides: dict[str, JsonValue] = {
        "model": params.model,
        "model_provider": params.model_provider,
        "approval_policy": params.approval_policy,
        "approvals_reviewer": params.approvals_reviewer,
        "base_instructions": params.base_instructions,
        "developer_instructions": params.developer_instructions,
        "personality": getattr(params, "personality", None),
        "service_name": getattr(params, "service_name", None),
    }
    changed = {name: value for name, value in overrides.items() if value is not None}
    refuse_disallowed(
        effective.requirements,
        {
            "approval_policy": params.approval_policy,
            "approvals_reviewer": params.approvals_reviewer,
            "sandbox_mode": params.sandbox,
        },
    )
    if params.permissions is not None and params.sandbox is not None:
        raise InvalidInput("permissions", "`permissions` cannot be combined with `sandbox`")
    if params.sandbox is not None:
        changed |= {"sandbox": effective.sandbox_policy(params.sandbox), "permission_profile": None}
    if params.permissions and (profile := effective.permission_profile(params.permissions)):
        changed |= {
            "sandbox": profile.sandbox,
            "permission_profile": profile.active,
            "network": profile.network,
        }
    if params.service_tier is not UNSET:
        changed["service_tier"] = params.service_tier or "default"
    tools = getattr(params, "dynamic_tools", None)
    if tools is not None:
        check_tools(tools)
        changed["dynamic_tools"] = tuple(tools)
    is_stored = isinstance(params, ThreadResumeParams)
    if is_stored:
        settings = settings.chosen(**changed)
    else:
        choices = settings.client_choices | changed.keys()
        settings = replace(settings, **changed, client_choices=choices)
    if settings.model_provider not in effective.providers:
        reason = f"model provider `{settings.model_provider}` not found"
        raise InvalidInput("modelProvider", reason)
    return settings
