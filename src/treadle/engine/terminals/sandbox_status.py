"""Makes ready for commands that are confined, and says what the sandbox of this machine lacks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from treadle.engine.terminals.output_file import FOLDER, make_room
from treadle.protocol import notifications as n
from treadle.protocol.error import ConfigWarningNotification
from treadle.sandbox.backends.selection import known_gaps, prepare

if TYPE_CHECKING:
    from treadle.engine.threads import Threads

SUMMARY: Final = "The sandbox of this machine leaves gaps, because bubblewrap does not work here."
ADVICE: Final = (
    "`treadle doctor` names the cause and the fix. With `landlock_protects = true` in [sandbox], "
    "what .git, .codex and .agents hold stays read-only, and nothing new can be made beside them."
)


def sandbox_warning() -> ConfigWarningNotification | None:
    """What clients should know of the backend that was chosen, if one was and it has gaps."""
    gaps = known_gaps()
    if not gaps:
        return None
    details = "\n".join([*(f"- {gap}" for gap in gaps), ADVICE])
    return ConfigWarningNotification(summary=SUMMARY, details=details)


async def make_ready(threads: Threads) -> None:
    """Do ahead of time what the first command would wait for, and tell everybody what is amiss."""
    await prepare()
    warning = sandbox_warning()
    if warning is not None:
        threads.broadcast(n.CONFIG_WARNING, warning)
    await asyncio.to_thread(make_room, threads.home / FOLDER)
