"""The asyncio client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack, overload

import msgspec

from treadle.client._methods.async_methods import AsyncMethods
from treadle.client._methods.files import AsyncFiles
from treadle.client._methods.handlers import Handlers
from treadle.client._runtime.notifications import EventStream
from treadle.client._runtime.reconnect import Backoff
from treadle.client._runtime.runtime import ClientRuntime
from treadle.client.accounts import AsyncAccounts
from treadle.client.commands import AsyncCommand, argv_of, response_timeout
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
    to_fields,
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

REQUEST_TIMEOUT_SECONDS: Final = 30.0
IDLE_TIMEOUT_SECONDS: Final = 300.0


class AsyncClient(Handlers, AsyncFiles, AsyncAccounts, AsyncMethods):
    """Client of one app-server: Treadle, Codex or another implementation.

    `server` selects the server. By default the client starts one that is installed on this machine.
    A program's name (`codex`) or a command starts that program; a `ws://` or `unix://` URL or the
    path of a socket connects to a running server; a `Connector` connects in a custom way. Use the
    client as `async with AsyncClient()`.
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
        reconnect = options.get("reconnect", connector.can_return)
        self._core = ClientRuntime(
            connector,
            _initialize_params(options),
            policy=options.get("approvals"),
            backoff=(Backoff() if reconnect is True else reconnect or None),
            timeout=options.get("request_timeout", REQUEST_TIMEOUT_SECONDS),
            idle_timeout=options.get("turn_idle_timeout", IDLE_TIMEOUT_SECONDS),
        )
        for each in options.get("tools", ()):
            self.add_tool(make_tool(each))

    @classmethod
    def in_process(cls, server: Attachable, **options: Unpack[ClientOptions]) -> Self:
        """Return a client of a server in this process."""
        return cls(server, **options)

    @property
    def core(self) -> ClientRuntime:
        """The client's internals, for the blocking client and for drivers built on it."""
        return self._core

    # -- lifecycle

    async def connect(self) -> InitializeResponse:
        """Connect to the server and perform the handshake.

        Raises:
            ServerUnavailable: the server cannot be reached.
            ServerExited: the server process ended during the handshake.
        """
        self._server = await self._core.open()
        return self._server

    async def close(self) -> None:
        """Close the connection; a server process that the client started ends."""
        await self._core.close()

    async def disconnect(self) -> None:
        """Close the client; an alias of `close`."""
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
        """The server's answer to `initialize`."""
        if self._server is None:
            raise RuntimeError("the client is not connected: await connect() first")
        return self._server

    # -- requests

    async def request(self, method: Request[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send any request of `treadle.protocol.client_requests` and return its result.

        Raises:
            RequestRefused: the server answered with an error.
            RequestTimeout: the server did not answer in time.
            Disconnected: the connection is lost.
        """
        return await self._core.request(method, params, timeout=timeout)

    async def iterate(self, method: Request[P, R], params: P) -> AsyncIterator[JsonValue]:
        """Iterate over all pages of a request whose result has `data` and `next_cursor`."""
        while True:
            page: JsonValue = await self.request(method, params)
            for entry in page.data:
                yield entry
            if not page.next_cursor or not isinstance(params, msgspec.Struct):
                return
            params = msgspec.structs.replace(params, cursor=page.next_cursor)

    def events(self) -> EventStream:
        """Return a stream of new events outside turns: threads, accounts, warnings."""
        return self._core.notifications.stream()

    # -- threads

    async def start_thread(
        self, *, tools: Sequence[ToolLike] = (), **options: Unpack[ThreadOptions]
    ) -> AsyncThread:
        """Start a thread; `tools` are functions that the model may call in it.

        By default the agent may write in its folder. It asks for approval to do more only if the
        client has an approval handler.
        """
        thread_tools = [make_tool(each) for each in tools]
        fields = self._defaults() | to_fields(options)
        if fields.get("permissions") is not None:
            fields.pop("sandbox", None)
        specs = self._core.tools.specs(thread_tools)
        params = ThreadStartParams(dynamic_tools=[*specs] or None, **fields)
        session = await self.request(THREAD_START, params)
        # No event of a new thread is known yet: a server that numbers events starts after 0.
        self._core.notifications.seqs.setdefault(session.thread.id, 0)
        return self._open_thread(session, thread_tools)

    async def resume_thread(
        self,
        thread_id: str,
        *,
        tools: Sequence[ToolLike] = (),
        **options: Unpack[ResumeOptions],
    ) -> AsyncThread:
        """Load a stored thread, or join a running one.

        `tools` replace the thread's tools. A server that cannot replace them calls them by name.
        """
        thread_tools = [make_tool(each) for each in tools]
        specs = self._core.tools.specs(thread_tools)
        params = ThreadResumeParams(
            thread_id=thread_id, dynamic_tools=[*specs] or None, **to_fields(options)
        )
        with self._core.notifications.opening():
            session = await self.request(THREAD_RESUME, params)
            return self._open_thread(session, thread_tools)

    async def fork_thread(
        self,
        thread_id: str,
        *,
        tools: Sequence[ToolLike] = (),
        **options: Unpack[ForkOptions],
    ) -> AsyncThread:
        """Copy a thread's history into a new thread."""
        params = ThreadForkParams(thread_id=thread_id, **to_fields(options))
        session = await self.request(THREAD_FORK, params)
        return self._open_thread(session, [make_tool(each) for each in tools])

    def thread(self, thread_id: str) -> AsyncThread:
        """Return a thread by its id; the first turn resumes it."""
        return AsyncThread(self, self._core, thread_id, None)

    async def read_thread(self, thread_id: str, *, include_turns: bool = False) -> Thread:
        """Return a stored thread without loading it."""
        params = ThreadReadParams(thread_id=thread_id, include_turns=include_turns)
        return (await self.request(THREAD_READ, params)).thread

    async def iter_threads(self, **filters: JsonValue) -> AsyncIterator[Thread]:
        """Iterate over the threads that match the filters of `list_threads`, page by page."""
        async for thread in self.iterate(THREAD_LIST, ThreadListParams(**filters)):
            yield thread

    # -- turns

    async def start_turn(
        self, thread_id: str, input: Input, **options: Unpack[TurnOptions]
    ) -> Turn:
        """Start a turn and return once the server has accepted it; see `AsyncThread.stream`."""
        fields = to_fields(options)
        fields.setdefault("client_user_message_id", self._core.message_id())
        params = TurnStartParams(input=inputs_of(input), thread_id=thread_id, **fields)
        return (await self.request(TURN_START, params)).turn

    async def steer_turn(self, thread_id: str, input: Input, expected_turn_id: str) -> str:
        """Add input to a running turn; return the id of the turn that received it."""
        params = TurnSteerParams(
            thread_id=thread_id, expected_turn_id=expected_turn_id, input=inputs_of(input)
        )
        return (await self.request(TURN_STEER, params)).turn_id

    @overload
    async def run_turn(
        self,
        thread_id: str,
        input: Input,
        *,
        output_type: None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[None]: ...
    @overload
    async def run_turn(
        self,
        thread_id: str,
        input: Input,
        *,
        output_type: type[T],
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T]: ...
    async def run_turn(
        self,
        thread_id: str,
        input: Input,
        *,
        output_type: type[T] | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T] | TurnResult[None]:
        """Run a turn to its end; see `AsyncThread.run`."""
        thread = self.thread(thread_id)
        if output_type is None:
            return await thread.run(input, **options)
        return await thread.run(input, output_type=output_type, **options)

    # -- reviews

    async def start_review(
        self, thread_id: str, target: ReviewTarget, *, delivery: ReviewDelivery | None = None
    ) -> ReviewStartResponse:
        """Start a review and return once the server has accepted it."""
        params = ReviewStartParams(target=target, thread_id=thread_id, delivery=delivery)
        return await self.request(REVIEW_START, params)

    async def run_review(
        self,
        thread_id: str,
        target: ReviewTarget | None = None,
        *,
        delivery: ReviewDelivery | None = None,
    ) -> ReviewResult:
        """Review code, by default the uncommitted changes, and wait for the result."""
        return await self.thread(thread_id).run_review(target, delivery=delivery)

    # -- commands

    async def exec_command(
        self, command: Sequence[str], **options: Unpack[CommandOptions]
    ) -> CommandExecResponse:
        """Run a program in the server's sandbox, outside any thread, and wait until it ends."""
        params = CommandExecParams(command=argv_of(command), **to_fields(options))
        return await self.request(COMMAND_EXEC, params, timeout=response_timeout(params))

    async def spawn_command(
        self,
        command: Sequence[str],
        *,
        size: tuple[int, int] | None = None,
        **options: Unpack[CommandOptions],
    ) -> AsyncCommand:
        """Start a program and stream its output; `size` (rows, columns) gives it a terminal."""
        terminal = None if size is None else CommandExecTerminalSize(rows=size[0], cols=size[1])
        params = CommandExecParams(
            command=argv_of(command),
            process_id=uuid7(),
            stream_stdin=True,
            stream_stdout_stderr=True,
            tty=size is not None,
            size=terminal,
            **to_fields(options),
        )
        running = AsyncCommand(self._core, params)
        await running.start()
        return running

    # --

    def _defaults(self) -> dict[str, JsonValue]:
        options = self._options
        default_policy = "on-request" if self._core.server_requests.can_approve else "never"
        defaults = {
            "approval_policy": options.get("approval_policy") or default_policy,
            "sandbox": options.get("sandbox", "workspace-write"),
            "cwd": self._cwd,
            "model": options.get("model"),
        }
        return to_fields({name: each for name, each in defaults.items() if each is not None})

    def _open_thread(self, session: ThreadSession, tools: Sequence[JsonValue]) -> AsyncThread:
        thread_id = session.thread.id
        self._core.subscribed.add(thread_id)
        self._core.tools.bind(thread_id, tools)
        thread = AsyncThread(self, self._core, thread_id, session)
        thread.join()
        return thread


def _initialize_params(options: ClientOptions) -> InitializeParams:
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
