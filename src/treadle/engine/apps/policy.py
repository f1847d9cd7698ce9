"""The `[apps]` table of the configuration: which tools threads have, and their approvals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from treadle.engine.apps.tools import RawTool, app_of
from treadle.protocol.app import AppToolApproval
from treadle.protocol.base import JsonValue
from treadle.protocol.policy import ApprovalsReviewer

DEFAULTS: Final = "_default"


class _Tool(Struct, frozen=True):
    enabled: bool | None = None
    approval_mode: AppToolApproval | None = None


class _Choices(Struct, frozen=True):
    """The table of one app, or the one for all others."""

    enabled: bool | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    default_tools_approval_mode: AppToolApproval | None = None
    default_tools_enabled: bool | None = None
    destructive_enabled: bool | None = None
    open_world_enabled: bool | None = None
    tools: dict[str, _Tool] = {}


_OFF: Final = _Choices(enabled=False)


class AppsPolicy:
    """Decides by the tables of apps; a table that cannot be read disables what it is about."""

    def __init__(
        self,
        tables: Mapping[str, JsonValue] | None = None,
        *,
        reviewers: Collection[ApprovalsReviewer] | None = None,
    ) -> None:
        """Take the tables, and the reviewers that an administrator allows, if not all."""
        self._reviewers = reviewers
        self._choices = {name: _read(table) for name, table in (tables or {}).items()}
        self._defaults = self._choices.get(DEFAULTS, _Choices())

    def enables(self, app_id: str) -> bool:
        """Whether threads may use an app."""
        choices = self._choices.get(app_id, self._defaults)
        return choices.enabled is not False

    def offers(self, tool: RawTool) -> bool:
        """Whether threads have a tool; one without an app is in none."""
        app = app_of(tool)
        if app is None or not self.enables(app.id):
            return False
        choices = self._of(app.id)
        for chosen in (_tool(choices, tool).enabled, choices.default_tools_enabled):
            if chosen is not None:
                return chosen
        return all(
            self._flag(choices, flag) or _hint(tool, hint) is False
            for flag, hint in (
                ("destructive_enabled", "destructiveHint"),
                ("open_world_enabled", "openWorldHint"),
            )
        )

    def approval_mode(self, tool: RawTool) -> AppToolApproval:
        """When calls of a tool require approval."""
        app = app_of(tool)
        choices = self._of(app.id) if app is not None else _OFF
        return (
            _tool(choices, tool).approval_mode
            or choices.default_tools_approval_mode
            or self._defaults.default_tools_approval_mode
            or "auto"
        )

    def reviewer(self, tool: RawTool) -> ApprovalsReviewer | None:
        """Who decides about calls of a tool, if its app's table says so."""
        app = app_of(tool)
        chosen = self._of(app.id).approvals_reviewer if app is not None else None
        return chosen if self._reviewers is None or chosen in self._reviewers else None

    def _of(self, app_id: str) -> _Choices:
        # The defaults are not an app, even if one had this id.
        return self._choices.get(app_id, _Choices()) if app_id != DEFAULTS else _OFF

    def _flag(self, choices: _Choices, name: str) -> bool:
        chosen = getattr(choices, name)
        if chosen is None:
            chosen = getattr(self._defaults, name)
        return chosen is not False


def _read(table: JsonValue) -> _Choices:
    try:
        return msgspec.convert(table, _Choices)
    except msgspec.ValidationError:
        return _OFF


def _tool(choices: _Choices, tool: RawTool) -> _Tool:
    """Return the choices for a tool, which its name or its title names."""
    for name in (tool.get("name"), tool.get("title")):
        if isinstance(name, str) and name in choices.tools:
            return choices.tools[name]
    return _Tool()


def _hint(tool: RawTool, name: str) -> JsonValue:
    hints = tool.get("annotations")
    return hints.get(name) if isinstance(hints, dict) else None
