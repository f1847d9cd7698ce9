"""Compaction: replaces the history with the model's own summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.engine.conversation import instructions
from treadle.engine.conversation.input import message
from treadle.engine.conversation.items import text_of
from treadle.model.base import ModelItem

MAX_KEPT_CHARACTERS: Final = 80_000


def compacted(
    history: Sequence[ModelItem], context: Sequence[ModelItem], summary: str
) -> list[ModelItem]:
    """Return the context, the user's latest messages that fit, and the summary."""
    kept: list[ModelItem] = []
    room = MAX_KEPT_CHARACTERS
    for item in reversed(history):
        if not is_users_own(item):
            continue
        room -= len(text_of(item))
        if room < 0:
            break
        kept.append(item)
    return [*context, *reversed(kept), message("user", instructions.COMPACTION_PREFIX + summary)]


def without_older_half(history: list[ModelItem]) -> list[ModelItem]:
    """Return the newer half, without outputs whose calls are gone: providers reject those."""
    kept = history[len(history) // 2 :]
    calls = {str(item.get("call_id")) for item in kept if str(item.get("type")).endswith("_call")}
    return [
        item
        for item in kept
        if not str(item.get("type")).endswith("_call_output") or str(item.get("call_id")) in calls
    ]


def is_users_own(item: ModelItem) -> bool:
    """Whether the user wrote this message; the server's own ones begin with known tags."""
    if item.get("type") != "message" or item.get("role") != "user":
        return False
    text = text_of(item)
    tags = ("<environment_context>", "# AGENTS.md", "<turn_aborted>", "<skill>", "<review>")
    more = ("<subagent_notification>", f"<{instructions.EXTERNAL}")
    ours = (*tags, *more, instructions.COMPACTION_PREFIX)
    return not text.startswith(ours)
