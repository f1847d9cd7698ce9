"""Unattended runs of an agent: turns in one workspace that end with a report or an error.

    async with Session(SessionOptions(cwd="work/issue-7")) as session:
        report = await session.run("Fix the failing test.")

`run_unattended` adds continuation turns, retries within a budget, and a state that outlives the
process. Every server request is answered, every turn ends, and no process is left behind.
"""

from __future__ import annotations

from treadle.unattended.answers import UNAVAILABLE, Questions
from treadle.unattended.client import SessionOptions
from treadle.unattended.errors import (
    EXIT_CODES,
    ErrorKind,
    InvalidThreadPayload,
    InvalidTurnPayload,
    InvalidWorkspaceCwd,
    NoProgress,
    PortExit,
    ResponseError,
    ResponseTimeout,
    ServerNotFound,
    SessionApprovalRequired,
    SessionBudgetExceeded,
    SessionError,
    SessionTurnCancelled,
    SessionTurnFailed,
    SessionTurnTimeout,
    Stalled,
    TurnError,
    TurnInputRequired,
)
from treadle.unattended.events import EventKind, OnEvent, SessionEvent
from treadle.unattended.graphql import graphql_tool
from treadle.unattended.report import Evidence, Snapshot, TurnReport
from treadle.unattended.run import CONTINUATION, RunPlan, RunReport, run_unattended
from treadle.unattended.session import Session
from treadle.unattended.usage import RateLimit, Usage, Window
from treadle.unattended.workspace import Workspace

__all__ = [
    "CONTINUATION",
    "EXIT_CODES",
    "UNAVAILABLE",
    "ErrorKind",
    "EventKind",
    "Evidence",
    "InvalidThreadPayload",
    "InvalidTurnPayload",
    "InvalidWorkspaceCwd",
    "NoProgress",
    "OnEvent",
    "PortExit",
    "Questions",
    "RateLimit",
    "ResponseError",
    "ResponseTimeout",
    "RunPlan",
    "RunReport",
    "ServerNotFound",
    "Session",
    "SessionApprovalRequired",
    "SessionBudgetExceeded",
    "SessionError",
    "SessionEvent",
    "SessionOptions",
    "SessionTurnCancelled",
    "SessionTurnFailed",
    "SessionTurnTimeout",
    "Snapshot",
    "Stalled",
    "TurnError",
    "TurnInputRequired",
    "TurnReport",
    "Usage",
    "Window",
    "Workspace",
    "graphql_tool",
    "run_unattended",
]
