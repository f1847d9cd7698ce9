"""Prepares the sandbox before the first command, and warns of gaps in its protection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.engine.events.log import EventLog
from treadle.engine.terminals.output_file import FOLDER, make_room
from treadle.protocol import notifications as n
from treadle.protocol.error import ConfigWarningNotification

if TYPE_CHECKING:
    from treadle.sandbox.sandbox import Sandbox

SUMMARY: Final = "The sandbox has gaps on this machine because bubblewrap does not work here."
ADVICE: Final = (
    "`treadle doctor` shows the cause and the fix. With `landlock_protects = true` in [sandbox], "
    "the contents of .git, .codex and .agents stay read-only, and no new entries can be created "
    "beside them."
)


def sandbox_warning(sandbox: Sandbox) -> ConfigWarningNotification | None:
    """A warning about the gaps of the selected backend, if there are any."""
    gaps = sandbox.gaps
    if not gaps:
        return None
    details = "\n".join([*(f"- {gap}" for gap in gaps), ADVICE])
    return ConfigWarningNotification(summary=SUMMARY, details=details)


async def make_ready(sandbox: Sandbox, home: Path, broadcasts: EventLog) -> None:
    """Prepare the sandbox before the first command needs it, and broadcast a warning of gaps."""
    await sandbox.prepare()
    warning = sandbox_warning(sandbox)
    if warning is not None:
        broadcasts.publish(n.CONFIG_WARNING, warning)
    await asyncio.to_thread(make_room, home / FOLDER)
