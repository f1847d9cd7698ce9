"""What a realtime model learns of a thread before the conversation begins."""

from __future__ import annotations

from typing import Final

from treadle.engine.conversation.items import text_of
from treadle.engine.thread import LoadedThread

MAX_CHARS: Final = 16 * 1024
_MESSAGES: Final = 20
_ROLES: Final = ("user", "assistant")


def startup_context(thread: LoadedThread) -> str:
    """Return the folder of a thread and its latest messages, the newest in full."""
    lines: list[str] = []
    left = MAX_CHARS
    for item in reversed(thread.context.history.items):
        if item.get("type") != "message" or item.get("role") not in _ROLES:
            continue
        line = f"{item['role']}: {text_of(item)}"[:left]
        left -= len(line)
        lines.append(line)
        if left <= 0 or len(lines) == _MESSAGES:
            break
    said = "\n".join(reversed(lines))
    folder = f"Background about recent work; it may be incomplete.\n\nFolder: {thread.settings.cwd}"
    return f"{folder}\n\nThe conversation so far:\n{said}" if said else folder
