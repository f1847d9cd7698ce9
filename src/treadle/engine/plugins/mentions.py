"""Plugins that the user mentions, and what the model is shown of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from treadle.protocol.input import MentionUserInput, TextUserInput, UserInput

SCHEME: Final = "plugin://"
MAX_MENTIONS: Final = 50
"""The maximum number of plugins that one input may mention; others are left out."""

_LINK: Final = re.compile(r"\]\(plugin://([A-Za-z0-9@._-]{1,260})\)")


class MentionedPlugin(NamedTuple):
    """An active plugin, as its description for the model needs it."""

    id: str
    title: str
    name: str
    """The prefix of its skills."""
    has_skills: bool


def mentioned_plugins(content: Sequence[UserInput]) -> Iterator[str]:
    """Yield the ids of plugins that an input mentions, in a part of it or as a link in a text."""
    for part in content:
        if isinstance(part, MentionUserInput) and part.path.startswith(SCHEME):
            yield part.path.removeprefix(SCHEME)
        elif isinstance(part, TextUserInput):
            yield from (match[1] for match in _LINK.finditer(part.text))


def describe_plugin(plugin: MentionedPlugin, servers: Sequence[str]) -> str | None:
    """Describe a plugin that the user mentioned; `None` if it provides nothing here."""
    lines: list[str] = []
    if plugin.has_skills:
        lines.append(f"- Skills from this plugin are prefixed with `{plugin.name}:`.")
    if servers:
        names = ", ".join(f"`{name}`" for name in sorted(servers))
        lines.append(f"- MCP servers from this plugin available in this session: {names}.")
    if not lines:
        return None
    return "\n".join(
        [
            f"Capabilities from the `{plugin.title}` plugin:",
            *lines,
            "Use these plugin-associated capabilities to help solve the task.",
        ]
    )
