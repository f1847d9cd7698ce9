"""The context of one evaluation: prompt, session, limits and event handlers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from weakincentives import Deadline
from weakincentives.runtime import Heartbeat, RunContext, SessionProtocol

from treadle.protocol.base import JsonValue
from treadle.wink.worker import Worker

ADAPTER_NAME: Final = "codex_app_server"

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class EvaluationContext:
    """The state that the parts of one evaluation share."""

    # WINK's functions take its protocols, which its own classes do not match exactly.
    adapter: JsonValue
    prompt: JsonValue
    prompt_name: str
    session: SessionProtocol
    deadline: Deadline | None
    heartbeat: Heartbeat | None
    run_context: RunContext | None
    adapter_name: str = ADAPTER_NAME
    worker: Worker | None = None

    def set_worker(self, worker: Worker) -> None:
        """Set the worker that runs WINK's code."""
        self.worker = worker

    def is_over(self) -> bool:
        """Return whether the evaluation is over."""
        return self.worker is not None and self.worker.is_given_up

    @property
    def session_id(self) -> UUID | None:
        """The session's id, where it has one."""
        return getattr(self.session, "session_id", None)

    def seconds_left(self) -> float | None:
        """Return the seconds until the deadline; `None` without a deadline."""
        return None if self.deadline is None else self.deadline.remaining().total_seconds()

    def beat(self) -> None:
        """Report to the heartbeat that the evaluation is alive."""
        if self.heartbeat is not None:
            self.heartbeat.beat()

    def dispatch(self, event: object) -> None:
        """Dispatch an event to the session; log failures of its handlers."""
        outcome = self.session.dispatcher.dispatch(event)
        if not outcome.ok:
            logger.error(
                "event handlers failed",
                extra={"event_type": type(event).__name__, "failures": len(outcome.errors)},
            )
