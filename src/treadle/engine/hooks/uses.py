"""Actions that need approval, as hooks see them."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from treadle.protocol.base import JsonValue


class CommandUse(Struct, frozen=True):
    """A command, and why the model wants to run it as it does."""

    argv: tuple[str, ...]
    reason: str | None = None


class EditUse(Struct, frozen=True):
    """A patch."""

    patch: str


class ToolUseRequest(Struct, frozen=True):
    """A call of another tool."""

    name: str
    input: JsonValue
    # Other names of the tool.
    aliases: tuple[str, ...] = ()


RequestedUse: TypeAlias = CommandUse | EditUse | ToolUseRequest
