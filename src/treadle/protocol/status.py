"""Whether a thread is loaded, idle, active or broken."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Value

ThreadActiveFlag = Literal["waitingOnApproval", "waitingOnUserInput"]
"""What an active turn waits for; without a flag, it is working."""


class NotLoadedThreadStatus(Value, tag="notLoaded", frozen=True):
    """The thread is stored only; resume it before use."""


class IdleThreadStatus(Value, tag="idle", frozen=True):
    """The thread is in memory and ready for a turn."""


class SystemErrorThreadStatus(Value, tag="systemError", frozen=True):
    """The last turn failed; the thread is in memory and accepts another turn."""


class ActiveThreadStatus(Value, tag="active", frozen=True):
    """A turn is active; the flags show whether it waits for the user."""

    active_flags: list[ThreadActiveFlag]


ThreadStatus = (
    NotLoadedThreadStatus | IdleThreadStatus | SystemErrorThreadStatus | ActiveThreadStatus
)


class ThreadStatusChangedNotification(Value, frozen=True):
    """The status of a thread changed."""

    status: ThreadStatus
    thread_id: str
