"""The client for programs that run on asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack, overload

import msgspec

from treadle.client._methods.files import AsyncFiles
from treadle.client._methods.handlers import Handlers
from treadle.client._methods.methods import AsyncMethods
from treadle.client._runtime.notifications import EventStream
from treadle.client._runtime.reconnect import Backoff
from treadle.client._runtime.runtime import ClientRuntime
from treadle.client.accounts import AsyncAccounts
from treadle.client.commands import AsyncCommand, patience, words_of
from treadle.client.connectors import Attachable, Where, connector_of
from treadle.client.options import (
    ClientOptions,
    CommandOptions,
    ForkOptions,
    Input,
    ResumeOptions,
    ThreadOptions,
    TurnOptions,
    check_names,
    inputs_of,
    spelled,
)
from treadle.client.result import ReviewResult, TurnResult
from treadle.client.thread import AsyncThread, ThreadSession
from treadle.client.tools import ToolLike, make_tool
from treadle.protocol.base import JsonValue
from treadle.protocol.client_requests import (
    COMMAND_EXEC,
    REVIEW_START,
    THREAD_FORK,
    THREAD_LIST,
    THREAD_READ,
    THREAD_RESUME,
    THREAD_START,
    TURN_START,
    TURN_STEER,
)
from treadle.protocol.command import (
    CommandExecParams,
    CommandExecResponse,
    CommandExecTerminalSize,
)
from treadle.protocol.initialize import (
    ClientInfo,
    InitializeCapabilities,
    InitializeParams,
    InitializeResponse,
)
from treadle.protocol.method import Request
from treadle.protocol.review import (
    ReviewDelivery,
    ReviewStartParams,
    ReviewStartResponse,
    ReviewTarget,
)
from treadle.protocol.thread import (
    Thread,
    ThreadForkParams,
    ThreadResumeParams,
    ThreadStartParams,
)
from treadle.protocol.thread_manage import ThreadListParams, ThreadReadParams
from treadle.protocol.turn import Turn, TurnStartParams, TurnSteerParams
from treadle.support.ids import uuid7

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

REQUEST_SECONDS: Final = 30.0
SILENCE_SECONDS: Final = 300.0


class AsyncClient(Handlers, AsyncFiles, AsyncAccounts, AsyncMethods):
    """A client of one app-server: Treadle's, Codex's, or another one.

    `server` says where it is: nothing starts one that is found on this machine; a program's name
    (`codex`) or a command starts that one; a `ws://` or `unix://` URL or the path of a socket goes
    to one that runs; a `Connector` is a way of your own. Use it as `async with AsyncClient()`.
    """

    def __init__(self, server: Where | None = None, **options: Unpack[ClientOptions]) -> None:
        check_names(options, ClientOptions.__optional_keys__)
        cwd = options.get("cwd")
        folder = None if cwd is None else str(cwd)
        connector = connector_of(
            server, token=options.get("token"), cwd=folder, env=options.get("env")
        )
        self._options = options
        self._cwd = folder or (str(Path.cwd()) if connector.is_local else None)
        self._server: InitializeResponse | None = None
        returns = options.get("reconnect", connector.can_return)
        self._core = ClientRuntime(
            connector,
            _hello(options),
            policy=options.get("approvals"),
            backoff=(Backoff() if returns is True else returns or None),
            timeout=options.get("request_timeout", REQUEST_SECONDS),
            silence=options.get("turn_silence", SILENCE_SECONDS),
        )
        for each in options.get("tools", ()):
            self.add_tool(make_tool(each))

    @classmethod
    def in_process(cls, server: Attachable, **options: Unpack[ClientOptions]) -> Self:
        """A client of a server in this process."""
        return cls(server, **options)

    @property
    def core(self) -> ClientRuntime:
        """What the client is made of; for its blocking twin and for drivers built on it."""
        return self._core

    # -- its life

    async def connect(self) -> InitializeResponse:
        """Reach the server and shake hands.

        Raises:
            ServerUnavailable: there is nobody to talk to.
            ServerExited: the server was started and ended at once.
        """
        self._server = await self._core.open()
        return self._server

    async def close(self) -> None:
        """Hang up; a server that was started here ends."""
        await self._core.close()

    async def disconnect(self) -> None:
        """Do the same as `close`."""
        await self.close()

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def server(self) -> InitializeResponse:
        """What the server said of itself."""
        if self._server is None:
            raise RuntimeError("the client is not connected: await connect() first")
        return self._server

    # -- requests

    async def request(self, method: Request[P, R], params: P, *, timeout: float | None = None) -> R:
        """Make any request of `treadle.protocol.client_requests`.

        Raises:
            RequestRefused: the server answered with an error.
            RequestTimeout: it did not answer in time.
            Disconnected: it is gone.
        """
        return await self._core.request(method, params, timeout=timeout)

    async def iterate(self, method: Request[P, R], params: P) -> AsyncIterator[JsonValue]:
        """Everything on all pages of a request whose answer has `data` and `next_cursor`."""
        while True:
            page: JsonValue = await self.request(method, params)
            for entry in page.data:
                yield entry
            if not page.next_cursor or not isinstance(params, msgspec.Struct):
                return
            params = msgspec.structs.replace(params, cursor=page.next_cursor)

    def events(self) -> EventStream:
        """What happens outside turns from now on: threads, accounts, warnings; for `async for`."""
        return self._core.hub.stream()

    # -- threads

    async def start_thread(
        self, *, tools: Sequence[ToolLike] = (), **options: Unpack[ThreadOptions]
    ) -> AsyncThread:
        """Begin a thread; `tools` are functions that the model may call in it.

        Without another choice the agent may write in its folder and never asks, or asks when it
        wants more if there is somebody to decide.
        """
        made = [make_tool(each) for each in tools]
        fields = self._defaults() | spelled(options)
        if fields.get("permissions") is not None:
            fields.pop("sandbox", None)
        specs = self._core.tools.specs(made)
        params = ThreadStartParams(dynamic_tools=[*specs] or None, **fields)
        session = await self.request(THREAD_START, params)
        # All that will ever happen in it is news: a server that counts starts here.
        self._core.hub.seqs.setdefault(session.thread.id, 0)
        return self._hold(session, made)

    async def resume_thread(
        self,
        thread_id: str,
        *,
        tools: Sequence[ToolLike] = (),
        **options: Unpack[ResumeOptions],
    ) -> AsyncThread:
        """Load a stored thread, or join one that runs.

        `tools` take the place of those it had; a server that cannot change them calls by name.
        """
        made = [make_tool(each) for each in tools]
        specs = self._core.tools.specs(made)
        params = ThreadResumeParams(
            thread_id=thread_id, dynamic_tools=[*specs] or None, **spelled(options)
        )
        with self._core.hub.opening():
            session = await self.request(THREAD_RESUME, params)
            return self._hold(session, made)

    async def fork_thread(
        self,
        thread_id: str,
        *,
        tools: Sequence[ToolLike] = (),
        **options: Unpack[ForkOptions],
    ) -> AsyncThread:
        """Copy a thread's history into a new thread."""
        params = ThreadForkParams(thread_id=thread_id, **spelled(options))
        session = await self.request(THREAD_FORK, params)
        return self._hold(session, [make_tool(each) for each in tools])

    def thread(self, thread_id: str) -> AsyncThread:
        """A thread by its id; it is resumed when the first turn needs it."""
        return AsyncThread(self, self._core, thread_id, None)

    async def read_thread(self, thread_id: str, *, include_turns: bool = False) -> Thread:
        """A thread as it is stored, without loading it."""
        params = ThreadReadParams(thread_id=thread_id, include_turns=include_turns)
        return (await self.request(THREAD_READ, params)).thread

    async def iter_threads(self, **filters: JsonValue) -> AsyncIterator[Thread]:
        """All threads that pass the filters of `list_threads`, page by page as they are needed."""
        async for thread in self.iterate(THREAD_LIST, ThreadListParams(**filters)):
            yield thread

    # -- turns

    async def start_turn(
        self, thread_id: str, given: Input, **options: Unpack[TurnOptions]
    ) -> Turn:
        """Start a turn and wait for no more than its announcement; see `AsyncThread.stream`."""
        fields = spelled(options)
        fields.setdefault("client_user_message_id", self._core.message_id())
        params = TurnStartParams(input=inputs_of(given), thread_id=thread_id, **fields)
        return (await self.request(TURN_START, params)).turn

    async def steer_turn(self, thread_id: str, given: Input, expected_turn_id: str) -> str:
        """Give a running turn more input; gives the id of the turn that took it."""
        params = TurnSteerParams(
            thread_id=thread_id, expected_turn_id=expected_turn_id, input=inputs_of(given)
        )
        return (await self.request(TURN_STEER, params)).turn_id

    @overload
    async def run_turn(
        self,
        thread_id: str,
        given: Input,
        *,
        output_type: None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[None]: ...
    @overload
    async def run_turn(
        self,
        thread_id: str,
        given: Input,
        *,
        output_type: type[T],
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T]: ...
    async def run_turn(
        self,
        thread_id: str,
        given: Input,
        *,
        output_type: type[T] | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T] | TurnResult[None]:
        """Run a turn to its end; see `AsyncThread.run`."""
        thread = self.thread(thread_id)
        if output_type is None:
            return await thread.run(given, **options)
        return await thread.run(given, output_type=output_type, **options)

    # -- reviews

    async def start_review(
        self, thread_id: str, target: ReviewTarget, *, delivery: ReviewDelivery | None = None
    ) -> ReviewStartResponse:
        """Start a review and wait for no more than its announcement."""
        params = ReviewStartParams(target=target, thread_id=thread_id, delivery=delivery)
        return await self.request(REVIEW_START, params)

    async def run_review(
        self,
        thread_id: str,
        target: ReviewTarget | None = None,
        *,
        delivery: ReviewDelivery | None = None,
    ) -> ReviewResult:
        """Have code reviewed, the uncommitted changes by default, and wait for the verdict."""
        return await self.thread(thread_id).run_review(target, delivery=delivery)

    # -- commands

    async def exec_command(
        self, command: Sequence[str], **options: Unpack[CommandOptions]
    ) -> CommandExecResponse:
        """Run a program in the server's sandbox, outside any thread, and wait for its end."""
        params = CommandExecParams(command=words_of(command), **spelled(options))
        return await self.request(COMMAND_EXEC, params, timeout=patience(params))

    async def spawn_command(
        self,
        command: Sequence[str],
        *,
        size: tuple[int, int] | None = None,
        **options: Unpack[CommandOptions],
    ) -> AsyncCommand:
        """Run a program and stream its output; with a size (rows, columns) on a terminal."""
        terminal = None if size is None else CommandExecTerminalSize(rows=size[0], cols=size[1])
        params = CommandExecParams(
            command=words_of(command),
            process_id=uuid7(),
            stream_stdin=True,
            stream_stdout_stderr=True,
            tty=size is not None,
            size=terminal,
            **spelled(options),
        )
        running = AsyncCommand(self._core, params)
        await running.start()
        return running

    # --

    def _defaults(self) -> dict[str, JsonValue]:
        options = self._options
        asks = "on-request" if self._core.asks.can_approve else "never"
        given = {
            "approval_policy": options.get("approval_policy") or asks,
            "sandbox": options.get("sandbox", "workspace-write"),
            "cwd": self._cwd,
            "model": options.get("model"),
        }
        return spelled({name: each for name, each in given.items() if each is not None})

    def _hold(self, session: ThreadSession, tools: Sequence[JsonValue]) -> AsyncThread:
        thread_id = session.thread.id
        self._core.subscribed.add(thread_id)
        self._core.tools.bind(thread_id, tools)
        thread = AsyncThread(self, self._core, thread_id, session)
        thread.join()
        return thread


def _hello(options: ClientOptions) -> InitializeParams:
    from treadle import __version__

    name = options.get("client_name", "treadle")
    return InitializeParams(
        client_info=ClientInfo(
            name=name,
            version=options.get("client_version", __version__),
            title=options.get("client_title", name),
        ),
        capabilities=InitializeCapabilities(
            experimental_api=options.get("experimental_api", True),
            opt_out_notification_methods=list(options.get("opt_out", ())) or None,
        ),
    )
