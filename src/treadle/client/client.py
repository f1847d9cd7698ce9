"""The blocking client: the interface of `AsyncClient` for programs without asyncio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack, overload

from treadle.client._methods.blocking_methods import Methods
from treadle.client._methods.files import AnyPath
from treadle.client._methods.handlers import Handlers
from treadle.client._runtime.portal import Portal
from treadle.client._runtime.runtime import ClientRuntime
from treadle.client.async_client import AsyncClient
from treadle.client.blocking import Command, Login, Thread
from treadle.client.connectors import Attachable, Where
from treadle.client.events import Event
from treadle.client.options import (
    ClientOptions,
    CommandOptions,
    ForkOptions,
    Input,
    ResumeOptions,
    ThreadOptions,
    TurnOptions,
)
from treadle.client.result import ReviewResult, TurnResult
from treadle.client.tools import ToolLike
from treadle.protocol.base import JsonValue
from treadle.protocol.command import CommandExecResponse
from treadle.protocol.config import ConfigWriteResponse, MergeStrategy
from treadle.protocol.initialize import InitializeResponse
from treadle.protocol.method import Request
from treadle.protocol.review import ReviewDelivery, ReviewStartResponse, ReviewTarget
from treadle.protocol.thread import Thread as ThreadInfo
from treadle.protocol.turn import Turn as TurnInfo

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class Client(Handlers, Methods):
    """Blocking client of one app-server; see `AsyncClient` for the parameters.

    An event loop in a separate thread does the work. Handlers and tools may call the client.
    Listeners of `on` may not, because they run on that loop.
    """

    def __init__(self, server: Where | None = None, **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncClient(server, **options)
        self._core: ClientRuntime = self._client.core
        self._portal = Portal()

    @classmethod
    def in_process(cls, server: Attachable, **options: Unpack[ClientOptions]) -> Self:
        """Return a client of a server in this process, which runs on the client's event loop."""
        return cls(server, **options)

    @property
    def core(self) -> ClientRuntime:
        """The client's internals."""
        return self._core

    @property
    def portal(self) -> Portal:
        """The client's event loop, for running coroutines on it."""
        return self._portal

    # -- lifecycle

    def connect(self) -> InitializeResponse:
        """Connect to the server and perform the handshake; see `AsyncClient.connect`."""
        self._portal.start()
        return self._portal.run(self._client.connect())

    def close(self) -> None:
        """Close the connection; a server process that the client started ends."""
        self._portal.start()
        self._portal.run(self._client.close())
        self._portal.stop()

    def disconnect(self) -> None:
        """Close the client; an alias of `close`."""
        self.close()

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def server(self) -> InitializeResponse:
        """The server's answer to `initialize`."""
        return self._client.server

    # -- requests

    def request(self, method: Request[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send any request of `treadle.protocol.client_requests` and return its result."""
        return self._portal.run(self._client.request(method, params, timeout=timeout))

    def iterate(self, method: Request[P, R], params: P) -> Iterator[JsonValue]:
        """Iterate over all pages of a request whose result has `data` and `next_cursor`."""
        return self._portal.iterate(self._client.iterate(method, params))

    def events(self) -> Iterator[Event]:
        """Iterate over new events outside turns: threads, accounts, warnings."""
        return self._portal.iterate(self._portal.call(self._client.events))

    # -- threads

    def start_thread(
        self, *, tools: Sequence[ToolLike] = (), **options: Unpack[ThreadOptions]
    ) -> Thread:
        """Start a thread; see `AsyncClient.start_thread`."""
        return self._thread(self._portal.run(self._client.start_thread(tools=tools, **options)))

    def resume_thread(
        self,
        thread_id: str,
        *,
        tools: Sequence[ToolLike] = (),
        **options: Unpack[ResumeOptions],
    ) -> Thread:
        """Load a stored thread, or join a running one; see `AsyncClient.resume_thread`."""
        work = self._client.resume_thread(thread_id, tools=tools, **options)
        return self._thread(self._portal.run(work))

    def fork_thread(
        self,
        thread_id: str,
        *,
        tools: Sequence[ToolLike] = (),
        **options: Unpack[ForkOptions],
    ) -> Thread:
        """Copy a thread's history into a new thread."""
        work = self._client.fork_thread(thread_id, tools=tools, **options)
        return self._thread(self._portal.run(work))

    def thread(self, thread_id: str) -> Thread:
        """Return a thread by its id; the first turn resumes it."""
        return self._thread(self._client.thread(thread_id))

    def read_thread(self, thread_id: str, *, include_turns: bool = False) -> ThreadInfo:
        """Return a stored thread without loading it."""
        return self._portal.run(self._client.read_thread(thread_id, include_turns=include_turns))

    def iter_threads(self, **filters: JsonValue) -> Iterator[ThreadInfo]:
        """Iterate over the threads that match the filters of `list_threads`, page by page."""
        return self._portal.iterate(self._client.iter_threads(**filters))

    # -- turns

    def start_turn(self, thread_id: str, input: Input, **options: Unpack[TurnOptions]) -> TurnInfo:
        """Start a turn and return once the server has accepted it; see `Thread.stream`."""
        return self._portal.run(self._client.start_turn(thread_id, input, **options))

    def steer_turn(self, thread_id: str, input: Input, expected_turn_id: str) -> str:
        """Add input to a running turn; return the id of the turn that received it."""
        return self._portal.run(self._client.steer_turn(thread_id, input, expected_turn_id))

    @overload
    def run_turn(
        self,
        thread_id: str,
        input: Input,
        *,
        output_type: None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[None]: ...
    @overload
    def run_turn(
        self,
        thread_id: str,
        input: Input,
        *,
        output_type: type[T],
        **options: Unpack[TurnOptions],
    ) -> TurnResult[T]: ...
    def run_turn(
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
            return thread.run(input, **options)
        return thread.run(input, output_type=output_type, **options)

    # -- reviews

    def start_review(
        self, thread_id: str, target: ReviewTarget, *, delivery: ReviewDelivery | None = None
    ) -> ReviewStartResponse:
        """Start a review and return once the server has accepted it."""
        return self._portal.run(self._client.start_review(thread_id, target, delivery=delivery))

    def run_review(
        self,
        thread_id: str,
        target: ReviewTarget | None = None,
        *,
        delivery: ReviewDelivery | None = None,
    ) -> ReviewResult:
        """Review code, by default the uncommitted changes, and wait for the result."""
        return self._portal.run(self._client.run_review(thread_id, target, delivery=delivery))

    # -- commands

    def exec_command(
        self, command: Sequence[str], **options: Unpack[CommandOptions]
    ) -> CommandExecResponse:
        """Run a program in the server's sandbox, outside any thread, and wait until it ends."""
        return self._portal.run(self._client.exec_command(command, **options))

    def spawn_command(
        self,
        command: Sequence[str],
        *,
        size: tuple[int, int] | None = None,
        **options: Unpack[CommandOptions],
    ) -> Command:
        """Start a program and stream its output; `size` (rows, columns) gives it a terminal."""
        work = self._client.spawn_command(command, size=size, **options)
        return Command(self._portal, self._portal.run(work))

    # -- files and configuration

    def read_file(self, path: AnyPath) -> bytes:
        """Return the contents of a file."""
        return self._portal.run(self._client.read_file(path))

    def read_text(self, path: AnyPath, *, encoding: str = "utf-8") -> str:
        """Return the contents of a text file."""
        return self._portal.run(self._client.read_text(path, encoding=encoding))

    def write_file(self, path: AnyPath, data: bytes | str) -> None:
        """Create or overwrite a file; text is encoded as UTF-8."""
        self._portal.run(self._client.write_file(path, data))

    def write_config(
        self,
        values: Mapping[str, JsonValue],
        *,
        merge_strategy: MergeStrategy = "replace",
        expected_version: str | None = None,
        file_path: AnyPath | None = None,
        reload_user_config: bool = False,
    ) -> ConfigWriteResponse:
        """Set keys of the user's configuration; see `AsyncClient.write_config`."""
        work = self._client.write_config(
            values,
            merge_strategy=merge_strategy,
            expected_version=expected_version,
            file_path=file_path,
            reload_user_config=reload_user_config,
        )
        return self._portal.run(work)

    # -- accounts

    def login_api_key(self, api_key: str) -> None:
        """Sign in with an API key, which the server stores."""
        self._portal.run(self._client.login_api_key(api_key))

    def login_chatgpt(self, *, device_code: bool = False) -> Login:
        """Start a ChatGPT sign-in; use `device_code` if the browser is on another machine."""
        work = self._client.login_chatgpt(device_code=device_code)
        return Login(self._portal, self._portal.run(work))

    # --

    def _thread(self, thread: JsonValue) -> Thread:
        return Thread(self._portal, thread)
