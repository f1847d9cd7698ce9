"""A complete run: turns until the work is done, with a budget for failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeAlias

from treadle.client._runtime.callbacks import call
from treadle.client._runtime.reconnect import Backoff
from treadle.support.clock import now_ms
from treadle.support.ids import uuid7
from treadle.unattended.client import SessionOptions
from treadle.unattended.errors import (
    NoProgress,
    SessionBudgetExceeded,
    SessionError,
    SessionTurnFailed,
)
from treadle.unattended.events import EventKind, OnEvent, SessionEvent, call_back
from treadle.unattended.report import TurnReport
from treadle.unattended.session import Session
from treadle.unattended.state import StateFile
from treadle.unattended.usage import Usage

CONTINUATION: Final = (
    "Continue: the work is not done yet. The earlier conversation is in this thread; "
    "check the current state of the workspace, finish the remaining work, and do not start over."
)
IsDone: TypeAlias = Callable[[TurnReport], bool | Awaitable[bool]]
Ending: TypeAlias = Literal["done", "idle", "max_turns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The end conditions of a run and its budget for failures."""

    max_turns: int = 20
    is_done: IsDone | None = None
    """Called after each turn; without it a run ends with the first turn that changed nothing."""
    recheck: Callable[[], bool | Awaitable[bool]] | None = None
    """Called if the stored state says that the run is done; without it the state is believed."""
    continuation: str | Callable[[TurnReport], str] = CONTINUATION
    """The input of each further turn."""
    max_idle_turns: int = 3
    """Maximum number of consecutive turns without changes while `is_done` returns false."""
    retry: Backoff = field(default_factory=lambda: Backoff(attempts=5, first_s=10, longest_s=300))
    """Maximum number of failures of a run, and the wait after each."""
    longest_wait_s: float = 3600.0
    """Longest wait for a rate limit with a known reset time."""
    state: Path | None = None
    """A file from which a later run continues with the same thread, counts and budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The result of a run that did not fail."""

    ending: Ending
    """`done`: `is_done` returned true. `idle`: the last turn changed nothing and there is no
    `is_done`. `max_turns`: the limit was reached."""
    thread_id: str | None
    turns: tuple[TurnReport, ...]
    usage: Usage
    failures: int

    @property
    def agent_message(self) -> str:
        """The agent's last message."""
        return self.turns[-1].agent_message if self.turns else ""


async def run_unattended(
    prompt: str, options: SessionOptions, plan: RunPlan | None = None
) -> RunReport:
    """Run turns until the work is done, with retries after transient failures.

    Raises:
        SessionError: a permanent error, or the last error when the budget is used up.
    """
    run = _Run(prompt, options, plan or RunPlan())
    try:
        return await run.go()
    finally:
        await run.close()


def _is_full(error: SessionError) -> bool:
    return (
        isinstance(error, SessionTurnFailed) and error.codex_error_info == "contextWindowExceeded"
    )


class _Run:
    def __init__(self, prompt: str, options: SessionOptions, plan: RunPlan) -> None:
        self._prompt = prompt
        self._options = options
        self._plan = plan
        self._file = StateFile(plan.state)
        self._state = self._file.load(prompt)
        self._waits: Iterator[float] = plan.retry.delays()
        self._session: Session | None = None
        self._reports: list[TurnReport] = []
        self._idle = 0
        self._is_compacted = False
        self._spent_before = self._state.usage
        for _ in islice(self._waits, max(0, self._state.failures)):
            pass

    async def go(self) -> RunReport:
        """Run turns until the run ends."""
        state = self._state
        if state.is_done and await self._is_still_done():
            return self._report("done")
        state.is_done = False
        while state.turns < self._plan.max_turns:
            try:
                report = await self._turn()
            except SessionError as error:
                await self._recover(error)
                continue
            ending = await self._judge(report)
            if ending is not None:
                state.is_done = True
                self._save()
                return self._report(ending)
        return self._report("max_turns")

    async def _is_still_done(self) -> bool:
        recheck = self._plan.recheck
        return recheck is None or bool(await call(recheck))

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._close_session(self._session)

    async def _turn(self) -> TurnReport:
        session = await self._open()
        state = self._state
        count = session.turn_count
        try:
            if state.is_prompt_sent:
                report = await session.run(self._continuation())
            else:
                report = await session.run(self._prompt, client_user_message_id=state.prompt_id)
            # A failed turn counts as a failure only: otherwise it could be the last one allowed.
            state.turns += 1
        finally:
            state.is_prompt_sent = state.is_prompt_sent or session.turn_count > count
            self._save()
        self._reports.append(report)
        return report

    async def _open(self) -> Session:
        if self._session is not None and not self._session.is_closed:
            return self._session
        if self._session is not None:
            await self._close_session(self._session)
        state = self._state
        budget = self._options.max_tokens
        if budget is not None:
            budget -= state.usage.total_tokens
            if budget <= 0:
                raise SessionBudgetExceeded(state.usage.total_tokens, self._options.max_tokens or 0)
        options = replace(self._options, max_tokens=budget)
        if state.thread_id is not None:
            options = replace(options, resume=state.thread_id, resume_total=state.thread_total)
        session = Session(options)
        thread_id = await session.start()
        if thread_id != state.thread_id:
            state.thread_id, state.thread_total = thread_id, None
        # A new thread (the server no longer knows the old one) needs the whole prompt again.
        state.is_prompt_sent = state.is_prompt_sent and session.is_resumed
        self._session = session
        if state.prompt_id is not None and session.is_resumed and not state.is_prompt_sent:
            # An earlier process may have ended between sending the prompt and recording that.
            state.is_prompt_sent = await session.has_message(state.prompt_id)
        state.prompt_id = state.prompt_id or uuid7()
        self._save()
        return session

    async def _close_session(self, session: Session) -> None:
        await session.close()
        self._spent_before += session.used
        self._session = None

    def _continuation(self) -> str:
        continuation = self._plan.continuation
        if isinstance(continuation, str):
            return continuation
        return continuation(self._reports[-1]) if self._reports else CONTINUATION

    async def _judge(self, report: TurnReport) -> Ending | None:
        self._idle = 0 if report.evidence.is_any else self._idle + 1
        is_done = self._plan.is_done
        if is_done is None:
            return None if report.evidence.is_any else "idle"
        if await call(is_done, report):
            return "done"
        if self._idle >= self._plan.max_idle_turns:
            error = NoProgress(self._idle)
            error.report = report
            self._state.block(str(error.kind))
            self._save()
            raise error
        return None

    async def _recover(self, error: SessionError) -> None:
        """Wait for a retry, if it can help and the budget allows it.

        Raises:
            SessionError: it cannot, or the budget is used up.
        """
        state = self._state
        state.failures += 1
        wait = next(self._waits, None)
        if wait is None or not self._may_help(error):
            state.blocked = str(error.kind)
            self._save()
            if state.failures > 1:
                error.add_note(f"the run gave up after {state.failures} failures")
            raise error
        if error.retry_at is not None:
            wait = max(wait, error.retry_at - time.time())
        self._save()
        await self._report_retry(error, wait)
        await asyncio.sleep(wait)
        if _is_full(error) and self._session is not None:
            try:
                await self._session.compact()
            except SessionError as failure:
                await self._recover(failure)  # counts as a failure like that of a turn
            else:
                self._is_compacted = True

    def _may_help(self, error: SessionError) -> bool:
        """Return whether a retry may help after an acceptable wait."""
        if not error.is_retryable or (_is_full(error) and self._is_compacted):
            return False  # a thread that is full again after a compaction cannot fit
        until = error.retry_at
        return until is None or until - time.time() <= self._plan.longest_wait_s

    async def _report_retry(self, error: SessionError, wait: float) -> None:
        callback: OnEvent | None = self._options.on_event
        if callback is None:
            return
        payload = {**error.payload_document(), "waitSeconds": wait, "failure": self._state.failures}
        event = SessionEvent(
            event=EventKind.RETRYING,
            at_ms=now_ms(),
            thread_id=self._state.thread_id,
            payload=payload,
        )
        await call_back(callback, event)

    def _save(self) -> None:
        thread_total = self._session.thread_total if self._session is not None else None
        self._state.count(self._used(), thread_total)
        self._file.save(self._state)

    def _used(self) -> Usage:
        now = self._session.used if self._session is not None else Usage()
        return self._spent_before + now

    def _report(self, ending: Ending) -> RunReport:
        return RunReport(
            ending=ending,
            thread_id=self._state.thread_id,
            turns=tuple(self._reports),
            usage=self._used(),
            failures=self._state.failures,
        )
