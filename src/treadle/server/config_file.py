"""Reads `config.toml` and the overrides of the command line. Writing it is not done here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from treadle.protocol.base import JsonValue

_KNOWN: Final = frozenset(
    """
    agents allow_login_shell analytics approval_policy approvals_reviewer apps audio
    background_terminal_max_timeout base_instructions chatgpt_base_url check_for_update_on_startup
    cli_auth_credentials_store commit_attribution compact_prompt default_permissions desktop
    developer_instructions disable_paste_burst experimental_bearer_token
    experimental_compact_prompt_file experimental_instructions_file feedback features
    file_opener forced_chatgpt_workspace_id forced_login_method hide_agent_reasoning history hooks
    instructions log_dir marketplaces mcp_oauth_callback_port mcp_oauth_callback_url
    mcp_oauth_credentials_store mcp_servers memories model model_auto_compact_token_limit
    model_catalog_json model_context_window model_instructions_file model_provider model_providers
    model_reasoning_effort model_reasoning_summary model_supports_reasoning_summaries
    model_verbosity notice notify openai_base_url otel oss_provider permissions
    plan_mode_reasoning_effort personality plugins profile profiles project_doc_fallback_filenames
    project_doc_max_bytes project_root_markers projects realtime review_model sandbox_mode
    sandbox_workspace_write service_tier shell_environment_policy show_raw_agent_reasoning skills
    sqlite_home suppress_unstable_features_warning tool_output_token_limit tool_suggest tools tui
    web_search windows zsh_path
    """.split()
)


class ConfigError(Exception):
    """The configuration cannot be used; the message names the file and the place."""


class Overrides(NamedTuple):
    """Values that the command line sets, by dotted key."""

    values: Mapping[str, JsonValue]

    @classmethod
    def parse(
        cls, assignments: Iterable[str], *, enable: Iterable[str] = (), disable: Iterable[str] = ()
    ) -> Overrides:
        """Read `key=value` pairs; a value that is not TOML is a plain string.

        Raises:
            ConfigError: there is no `=`, or no key before it.
        """
        values: dict[str, JsonValue] = {}
        for assignment in assignments:
            key, equals, text = assignment.partition("=")
            if not equals or not key.strip():
                message = f"invalid override {assignment!r}: expected key=value"
                raise ConfigError(message)
            values[key.strip()] = _parse_value(text.strip())
        values |= {f"features.{name}": True for name in enable}
        values |= {f"features.{name}": False for name in disable}
        return cls(values)


def _parse_value(text: str) -> JsonValue:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip("\"'")


def load_config(
    home: Path, overrides: Overrides, *, is_strict: bool = False
) -> dict[str, JsonValue]:
    """Read `config.toml` under the overrides.

    Raises:
        ConfigError: the file is not TOML or, when strict, holds a setting nobody knows.
    """
    path = home / "config.toml"
    try:
        config: dict[str, JsonValue] = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        config = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"failed to load {path}: {error}"
        raise ConfigError(message) from error
    unknown = sorted(key for key in config if key not in _KNOWN)
    if is_strict and unknown:
        names = ", ".join(f"`{name}`" for name in unknown)
        message = f"unknown configuration field {names} in {path}"
        raise ConfigError(message)
    for key, value in overrides.values.items():
        _set(config, key.split("."), value)
    return config


def _set(table: dict[str, JsonValue], path: list[str], value: JsonValue) -> None:
    for name in path[:-1]:
        inner = table.get(name)
        table[name] = dict(inner) if isinstance(inner, dict) else {}
        table = table[name]
    table[path[-1]] = value
