"""An unattended session: one server, one thread, and its turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self, Unpack, cast

from treadle.client._runtime.reconnect import deliver_missed
from treadle.client.errors import ClientError, RequestRefused
from treadle.client.options import Input, ResumeOptions, TurnOptions
from treadle.client.result import TurnResult
from treadle.client.thread import AsyncThread
from treadle.client.turn import AsyncTurn
from treadle.protocol.item import UserMessageThreadItem
from treadle.protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.protocol.turn import Turn
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.unattended.answers import Answers
from treadle.unattended.client import SessionClient, SessionOptions, timed_tools
from treadle.unattended.errors import (
    ServerNotFound,
    SessionError,
    SessionTurnFailed,
    SessionTurnTimeout,
    Stalled,
    TurnError,
    to_session_error,
)
from treadle.unattended.events import Delivery, EventKind
from treadle.unattended.git import WorkspaceGit
from treadle.unattended.monitor import Monitor
from treadle.unattended.report import Evidence, Snapshot, TurnReport, edited_files
from treadle.unattended.usage import RateLimit, Usage
from treadle.unattended.workspace import Workspace

_DRAIN_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05
_POLICIES: Final[dict[str, type]] = {
    "read-only": ReadOnlySandboxPolicy,
    "workspace-write": WorkspaceWriteSandboxPolicy,
    "danger-full-access": DangerFullAccessSandboxPolicy,
}


class Session:
    """One server, one thread, and its turns; use it as `async with`.

    After `SessionTurnFailed` and `SessionTurnCancelled` the next turn may run. Any other error
    ends the session, and the server with it if the session started it.
    """

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._workspace = Workspace.guarded(options.cwd, options.workspace_root)
        self._tasks = BackgroundTasks()
        self._delivery = Delivery(options.on_event, self._tasks)
        self._tools = timed_tools(options.tools, options.tool_seconds)
        self._monitor = Monitor(
            self._delivery,
            tools=frozenset(tool.name for tool in self._tools),
            max_tokens=options.max_tokens,
            is_shared=not options.is_process,
            block=self._block,
        )
        self._client = SessionClient(options, str(self._workspace.cwd), self._monitor.tap)
        is_unconfined = options.sandbox == "danger-full-access"
        self._git = WorkspaceGit(self._client, self._workspace.cwd, is_unconfined=is_unconfined)
        self._thread: AsyncThread | None = None
        self._bounds: TurnOptions = {}
        self._failure: SessionError | None = None
        self._is_running = False
        self._is_closed = False
        self._last = BackgroundTasks()
        self._closing: asyncio.Task[None] | None = None
        self.turn_count = 0
        """The number of started turns."""
        self.is_resumed = False
        """Whether the requested thread was resumed."""

    # -- lifecycle

    async def start(self) -> str:
        """Connect, start or resume the thread, and return its id.

        Raises:
            SessionError: the server is unavailable, does not answer, or refuses.
        """
        try:
            await self._client.connect()
            self._serve()
            self._thread = await self._begin_thread()
        except ClientError as error:
            failure = to_session_error(error)
            if isinstance(failure, ServerNotFound) and self._options.is_process:
                failure.is_retryable = False
            self._monitor.emit(EventKind.STARTUP_FAILED, payload=failure.payload_document())
            await self.close()
            raise failure from error
        except BaseException:
            await self.close()
            raise
        return self._thread.id

    async def close(self) -> None:
        """Stop the turn, disconnect, and end a server that was started here with its group."""
        if self._closing is None:
            self._is_closed = True
            self._closing = self._last.spawn(self._close(), "close session")
        # A cancelled caller stops waiting, but the server is still ended.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._client.close()
        self._monitor.emit(EventKind.SESSION_ENDED)
        await self._delivery.drain(_DRAIN_SECONDS)
        await self._tasks.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- state

    @property
    def thread_id(self) -> str | None:
        """The thread's id, once the session has started."""
        return self._monitor.thread_id

    @property
    def session_id(self) -> str | None:
        """`<thread>-<turn>` of the latest turn."""
        return self._monitor.session_id

    @property
    def used(self) -> Usage:
        """The tokens that the session has used so far."""
        return self._monitor.used

    @property
    def thread_total(self) -> Usage | None:
        """The thread's total, including its usage before this session."""
        return self._monitor.ledger.total(self.thread_id or "")

    @property
    def rate_limits(self) -> dict[str, RateLimit]:
        """The account's limits as last reported, by their ids."""
        return dict(self._monitor.rate_limits)

    @property
    def pid(self) -> int | None:
        """The process id of a server that was started here; it leads its own process group."""
        return self._monitor.tap.pid

    @property
    def is_closed(self) -> bool:
        """Whether the session can run no more turns."""
        return self._is_closed

    # -- turns

    async def run(self, input: Input, **options: Unpack[TurnOptions]) -> TurnReport:
        """Run a turn to its end; all turns use the same thread.

        Raises:
            SessionError: the turn did not succeed; see `treadle.unattended.errors`.
        """
        thread = self._ready()
        self._is_running = True
        try:
            self._workspace.check()
            before, used, count = await self._snapshot(), self.used, self.turn_count
            self._failure = None
            self._monitor.begin_turn()
            merged: TurnOptions = {
                "cwd": self._workspace.cwd,
                **self._bounds,
                **self._options.turn,
                **options,
            }
            turn = thread.stream(input, idle_timeout=None, timeout=None, **merged)
            try:
                result = await self._drive(turn)
            except ClientError as error:
                failure = to_session_error(error)
                if isinstance(failure, TurnError) and self.turn_count > count:
                    failure.report = self._report(turn.partial, before, before, used)
                await self._fail(failure)
                raise failure from error
            after = await self._snapshot()
            report = self._report(result, before, after, used)
            self._monitor.emit(EventKind.TURN_COMPLETED, payload={"usage": report.usage.document()})
            return report
        finally:
            self._is_running = False
            self._monitor.tap.forget_all()

    async def has_message(self, message_id: str) -> bool:
        """Return whether the thread has a message with this `client_user_message_id`.

        Raises:
            SessionError: the server does not answer.
        """
        thread = self._ready()
        try:
            turns = (await thread.read()).turns
        except RequestRefused:
            return False  # by a server that cannot read a thread that has no turn yet
        except ClientError as error:
            failure = to_session_error(error)
            await self._fail(failure)
            raise failure from error
        messages = (item for turn in turns for item in turn.items)
        return any(
            isinstance(item, UserMessageThreadItem) and item.client_id == message_id
            for item in messages
        )

    async def interrupt(self) -> None:
        """Stop the active turn; `run` raises `SessionTurnCancelled`."""
        thread, turn_id = self._thread, self._monitor.turn_id
        if self._is_running and thread is not None and turn_id is not None:
            await thread.interrupt(turn_id)

    async def compact(self) -> None:
        """Compact the thread's history and wait for the end.

        Raises:
            SessionError: the compaction failed or timed out.
        """
        thread = self._ready()
        ended: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()

        def on_completed(turn: Turn) -> None:
            if not ended.done():
                ended.set_result(turn)

        seconds = self._options.stall_seconds
        self._client.on("turn:completed", on_completed)
        try:
            async with asyncio.timeout(seconds):
                await thread.compact()
                turn = await ended
        except TimeoutError:
            stalled = Stalled(seconds or 0)
            await self._fail(stalled)
            raise stalled from None
        except ClientError as error:
            failure = to_session_error(error)
            await self._fail(failure)
            raise failure from error
        finally:
            self._client.off("turn:completed", on_completed)
        if turn.status != "completed":
            raise SessionTurnFailed("the thread could not be compacted")

    # --

    def _ready(self) -> AsyncThread:
        if self._thread is None or self._is_closed:
            raise RuntimeError("the session is not open: use `async with`")
        if self._is_running:
            raise RuntimeError("a turn is already running")
        return self._thread

    def _serve(self) -> None:
        options = self._options
        answers = Answers(
            is_auto=options.approval_policy == "never",
            approvals=options.approvals,
            questions=options.questions,
            on_question=options.on_question,
            on_elicitation=options.on_elicitation,
            block=self._block,
        )
        answers.serve(self._client)
        if options.on_token_refresh is not None:
            self._client.on_token_refresh(options.on_token_refresh)

    async def _begin_thread(self) -> AsyncThread:
        options = self._options
        if options.resume is not None:
            self._monitor.ledger.resume(options.resume, options.resume_total)
            try:
                thread = await self._client.resume_thread(
                    options.resume, tools=self._tools, **self._resume_options()
                )
            except RequestRefused as refused:
                if not _is_missing(refused):
                    raise
            else:
                self.is_resumed = True
                self._monitor.set_thread(thread.id)
                self._bounds = self._turn_bounds(thread)
                return thread
        thread = await self._client.start_thread(tools=self._tools, **options.thread)
        self._monitor.set_thread(thread.id)
        if options.title is not None:
            with suppress(RequestRefused):  # by a server without thread names
                await thread.set_name(options.title)
        return thread

    def _resume_options(self) -> ResumeOptions:
        """Return the options of the session for a resumed thread, which may have had others."""
        options = self._options
        settings: ResumeOptions = {
            "exclude_turns": True,
            "approval_policy": options.approval_policy,
            "sandbox": options.sandbox,
            "cwd": self._workspace.cwd,
            "model": options.model,
        }
        known = ResumeOptions.__annotations__
        chosen = {name: value for name, value in options.thread.items() if name in known}
        settings.update(cast(ResumeOptions, chosen))
        if settings.get("permissions") is not None:
            del settings["sandbox"]
        return settings

    def _turn_bounds(self, thread: AsyncThread) -> TurnOptions:
        """Return the permissions to send with each turn.

        A server does not apply those of `thread/resume` to a thread that it has in memory.
        """
        wanted, session = self._resume_options(), thread.session
        bounds: TurnOptions = {}
        if session is None:
            return bounds
        if session.approval_policy != wanted["approval_policy"]:
            bounds["approval_policy"] = wanted["approval_policy"]
        mode = wanted.get("sandbox")
        if mode is not None and not isinstance(session.sandbox, _POLICIES.get(mode, ())):
            bounds["sandbox_policy"] = mode
        return bounds

    async def _drive(self, turn: AsyncTurn) -> TurnResult[None]:
        seconds = self._options.turn_seconds
        try:
            async with asyncio.timeout(seconds), self._stall_watch(turn):
                await turn.start()
                self.turn_count += 1
                self._monitor.turn_is(turn.id)
                if self._failure is not None:
                    self._block(self._failure)
                async for _event in turn:
                    pass  # the monitor handles events; this only keeps the stream from filling up
                # A turn that ended before it could be interrupted has still violated the policy.
                self._raise_failure()
                return await turn.result()
        except TimeoutError:
            raise SessionTurnTimeout(seconds or 0) from None

    @asynccontextmanager
    async def _stall_watch(self, turn: AsyncTurn) -> AsyncIterator[None]:
        seconds = self._options.stall_seconds
        if seconds is None:
            yield
            return
        watch = self._tasks.spawn(self._watch(turn, seconds), "stall watch")
        try:
            yield
        finally:
            watch.cancel()

    async def _watch(self, turn: AsyncTurn, seconds: float) -> None:
        """Fail the turn at its idle timeout, unless the server reports that it has ended."""
        while True:
            left = seconds - self._monitor.seconds_silent()
            if left > 0:
                await asyncio.sleep(left)
            elif self._monitor.turn_id is None:
                await asyncio.sleep(_POLL_SECONDS)  # `turn/start` has its own timeout
            else:
                if not await self._has_ended(turn):
                    self._block(Stalled(seconds))
                return

    async def _has_ended(self, turn: AsyncTurn) -> bool:
        """Ask the server for the turn's status: `turn/completed` may have been lost."""
        try:
            thread = await self._client.read_thread(turn.thread_id, include_turns=True)
        except ClientError:
            return False  # unknown thread or no answer
        state = self._client.core.notifications.turns.get((turn.thread_id, turn.id))
        if state is None:
            return True
        for candidate in thread.turns:
            if candidate.id == turn.id and candidate.status != "inProgress":
                deliver_missed(state, candidate)
                return True
        return False

    def _block(self, error: SessionError) -> None:
        """End the active turn with this error."""
        self._failure = self._failure or error
        core = self._client.core
        key = self._monitor.thread_id, self._monitor.turn_id or ""
        state = core.notifications.turns.get(key)
        if state is not None:
            state.fail(error)
            core.give_up(state)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _fail(self, failure: SessionError) -> None:
        if isinstance(failure, SessionTurnFailed) and failure.is_limit:
            failure.retry_at = self._monitor.retry_at()
        self._monitor.emit(EventKind.TURN_ENDED_WITH_ERROR, payload=failure.payload_document())
        if failure.ends_session:
            await self.close()

    async def _snapshot(self) -> Snapshot:
        return await self._git.snapshot() if self._options.uses_git else Snapshot()

    def _report(
        self, result: TurnResult[None], before: Snapshot, after: Snapshot, used: Usage
    ) -> TurnReport:
        files = edited_files(result.items)
        return TurnReport(
            session_id=self.session_id or "",
            number=self.turn_count,
            result=result,
            usage=self.used.since(used),
            evidence=Evidence(files=files, diff=result.diff, before=before, after=after),
        )


def _is_missing(refused: RequestRefused) -> bool:
    """Return whether the thread is missing; the reference reports it only in the message."""
    message = refused.message.lower()
    return refused.kind == "threadNotFound" or any(text in message for text in _MISSING)


_MISSING: Final = ("no rollout found", "thread not found", "conversation not found")
