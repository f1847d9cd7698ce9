"""What a report contains besides the user's words: logs, configuration, threads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from treadle.config.configuration import Configuration
from treadle.config.describe import describe
from treadle.protocol.base import JsonValue
from treadle.server.feedback.report import FeedbackAttachment
from treadle.support import logs
from treadle.support.text.secrets import REDACTED
from treadle.support.text.urls import without_queries

# Tables whose values are secrets whatever their names.
_SECRET_TABLES: Final = frozenset({"env", "set", "http_headers", "query_params", "headers"})
_SECRET_NAME: Final = re.compile(
    r"key|token|secret|auth|pass|sig|cred|cookie|bearer|env|header", re.IGNORECASE
)
# Programs with arguments, which may be keys whatever they look like.
_PROGRAMS: Final = frozenset({"args", "command", "command_windows", "notify"})
# These name variables, files and policies.
_PUBLIC_NAME: Final = re.compile(
    r"env_key|env_var|env_http_headers|instructions|_store|_policy|_limit|_tokens?_|method|auths?$"
)


def logs_attachment() -> FeedbackAttachment:
    """Return the latest lines of the log."""
    return FeedbackAttachment(
        "treadle.log", "\n".join(logs.recent_lines()).encode("utf-8", "replace")
    )


def configuration_attachment(configuration: Configuration) -> FeedbackAttachment:
    """Return the configuration in force, without secrets."""
    answer = describe(configuration.lenient(), with_layers=False)
    table = redacted(msgspec.to_builtins(answer.config))
    return FeedbackAttachment("config.json", msgspec.json.encode(table))


def redacted(value: JsonValue, name: str = "") -> JsonValue:
    """Replace each secret in a configuration: what counts is the name of the setting."""
    if isinstance(value, Mapping):
        if name in _SECRET_TABLES:
            return dict.fromkeys(value, REDACTED)
        return {str(key): redacted(each, str(key)) for key, each in value.items()}
    if name in _PROGRAMS and isinstance(value, str | list):
        return _without_arguments(value, name)
    if isinstance(value, list):
        return [redacted(each, name) for each in value]
    if not isinstance(value, str) or not value:
        return value
    if _SECRET_NAME.search(name) and not _PUBLIC_NAME.search(name):
        return REDACTED
    return without_queries(value) if "://" in value else value


def _without_arguments(value: str | list[JsonValue], name: str) -> JsonValue:
    if isinstance(value, list):
        kept = value[: name != "args"]
        return [*kept, *[REDACTED] * (len(value) - len(kept))]
    program, _, rest = value.strip().partition(" ")
    # A script may begin with variables.
    shown = REDACTED if "=" in program else program
    return f"{shown} {REDACTED}" if rest else shown
