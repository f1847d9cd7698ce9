"""Whether a thread is loaded, idle, active or broken."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Value

ThreadActiveFlag = Literal["waitingOnApproval", "waitingOnUserInput"]
"""What a running turn waits for; none of them means that it works."""


class NotLoadedThreadStatus(Value, tag="notLoaded", frozen=True):
    """The thread is stored only; resume it before use."""


class IdleThreadStatus(Value, tag="idle", frozen=True):
    """The thread is in memory and ready for a turn."""


class SystemErrorThreadStatus(Value, tag="systemError", frozen=True):
    """The last turn failed; the thread is in memory and another turn may be tried."""


class ActiveThreadStatus(Value, tag="active", frozen=True):
    """A turn is running; the flags tell whether it waits for somebody."""

    active_flags: list[ThreadActiveFlag]


ThreadStatus = (
    NotLoadedThreadStatus | IdleThreadStatus | SystemErrorThreadStatus | ActiveThreadStatus
)


class ThreadStatusChangedNotification(Value, frozen=True):
    """A thread that the client knows of went from one status to another."""

    status: ThreadStatus
    thread_id: str
