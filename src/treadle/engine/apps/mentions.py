"""Apps that the user mentions in a turn: their tools are offered, and the model learns which."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from treadle.engine.apps.names import NamedTool
from treadle.engine.apps.tools import App
from treadle.protocol.input import MentionUserInput, TextUserInput, UserInput

SCHEME: Final = "app://"
MAX_MENTIONS: Final = 50
"""The maximum number of apps that the input of one turn may mention; others are left out."""

MAX_WORDS: Final = 200
_MAX_ID: Final = 256
_LINK: Final = re.compile(r"\]\(app://([A-Za-z0-9@._:-]{1,256})\)")
_WORD: Final = re.compile(r"\$([A-Za-z0-9-]{1,128})")


class AppMentions:
    """Collects what the input of the active turn mentions."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._words: dict[str, None] = {}
        self._described: set[str] = set()

    @property
    def has_any(self) -> bool:
        """Whether there may be a mention."""
        return bool(self._ids or self._words)

    @property
    def has_ids(self) -> bool:
        """Whether apps are mentioned by their ids."""
        return bool(self._ids)

    def clear(self) -> None:
        """Forget the mentions: another turn begins."""
        self._ids.clear()
        self._words.clear()
        self._described.clear()

    def add(self, content: Sequence[UserInput]) -> None:
        """Add the mentions of an input: parts of it, links in its texts, and words after a `$`."""
        for part in content:
            if isinstance(part, MentionUserInput) and part.path.startswith(SCHEME):
                self._add_id(part.path.removeprefix(SCHEME))
            elif isinstance(part, TextUserInput):
                for match in _LINK.finditer(part.text):
                    self._add_id(match[1])
                for match in _WORD.finditer(part.text):
                    if len(self._words) < MAX_WORDS:
                        self._words[match[1].lower()] = None

    def _add_id(self, app_id: str) -> None:
        if len(self._ids) < MAX_MENTIONS and 0 < len(app_id) <= _MAX_ID:
            self._ids[app_id] = None

    def apps_among(self, apps: Iterable[App]) -> set[str]:
        """Return the ids of these apps that are mentioned; a word counts if it means one app."""
        slugs = {app.id: app.slug for app in apps} if self._ids or self._words else {}
        counts = Counter(slugs.values())
        return {
            app_id
            for app_id, slug in slugs.items()
            if app_id in self._ids or (slug in self._words and counts[slug] == 1)
        }

    def describe(self, tools: Sequence[NamedTool]) -> str | None:
        """Describe mentioned apps that are not described yet to the model."""
        apps = {each.app.id: each for each in tools}
        mentioned = self.apps_among(each.app for each in tools)
        lines = [
            f"- {apps[app_id].app.title} ({SCHEME}{app_id}): its tools are in the namespace "
            f"`{apps[app_id].namespace}`."
            for app_id in sorted(mentioned - self._described)[:MAX_MENTIONS]
        ]
        missing = [each for each in self._ids if each not in apps and each not in self._described]
        lines += [f"- {SCHEME}{app_id}: no tools are available." for app_id in missing]
        self._described |= {*mentioned, *missing}
        return "\n".join(["Apps that the user mentions:", *lines]) if lines else None
