"""The conversation of a thread as text, in which no entry can pass for another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from treadle.engine.conversation.compaction import is_users_own
from treadle.engine.conversation.items import text_of
from treadle.engine.conversation.sources import source_of
from treadle.model.base import ModelItem
from treadle.store.stored_thread import ThreadMeta

FindConversation: TypeAlias = Callable[[str], tuple[ThreadMeta, Sequence[ModelItem]] | None]
"""Returns the metadata and the history of a thread, if it is in memory."""

MAX_ENTRY_CHARACTERS: Final = 4_000
MAX_TRANSCRIPT_CHARACTERS: Final = 60_000


def conversation_text(
    meta: ThreadMeta, history: Sequence[ModelItem], find: FindConversation
) -> str:
    """The conversation; that of a sub-agent follows the conversation of its parent."""
    if meta.parent_thread_id is None:
        return _transcript(history)
    parent = find(meta.parent_thread_id)
    above = conversation_text(*parent, find) if parent is not None else ""
    task = "[task] The agent above delegated work to another agent, whose conversation follows."
    # The task comes from an agent, not from the user.
    return "\n".join([above, task, _transcript(history, user="agent above")])


def _transcript(history: Sequence[ModelItem], user: str = "user") -> str:
    """A conversation, newest last; of a long one, the end and all messages of the user."""
    lines: list[str] = []
    room = MAX_TRANSCRIPT_CHARACTERS
    is_cut = False
    for who, text in _entries(reversed(history)):
        line = one_entry(f"[{user if who == 'user' else who}] {text}")
        room -= len(line)
        if room >= 0 or who == "user":
            lines.append(line)
        else:
            is_cut = True
    return "\n".join([*(["[earlier parts omitted]"] if is_cut else []), *reversed(lines)])


def _entries(items: Iterator[ModelItem]) -> Iterator[tuple[str, str]]:
    for item in items:
        match item.get("type"):
            case "message":
                yield _speaker(item), text_of(item)
            case "function_call":
                yield f"call of {item.get('name')}", str(item.get("arguments") or "")
            case "custom_tool_call":
                yield f"call of {item.get('name')}", str(item.get("input") or "")
            case "function_call_output" | "custom_tool_call_output":
                yield "output", str(item.get("output") or "")
            case _:
                pass


def _speaker(item: ModelItem) -> str:
    """The source of a message; text that the server writes in the user's role is not the user's."""
    if item.get("role") != "user":
        return "agent" if item.get("role") == "assistant" else str(item.get("role"))
    source = source_of(item)
    if source is not None:
        return "agent above" if source == "agent" else "note"
    # The output of a user's command was written by others.
    is_printed = text_of(item).startswith("<user_shell_command>")
    return "user" if is_users_own(item) and not is_printed else "note"


def one_entry(text: str) -> str:
    """Text that cannot imitate another entry: shortened, and indented from the second line on."""
    if len(text) > MAX_ENTRY_CHARACTERS:
        half = MAX_ENTRY_CHARACTERS // 2
        cut = len(text) - 2 * half
        text = f"{text[:half]} [... {cut} characters omitted ...] {text[-half:]}"
    return "\n    ".join(text.splitlines())
