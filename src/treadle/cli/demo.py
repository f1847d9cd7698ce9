"""Shows what works, live: real server processes, a turn, a kill -9, and every transport."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from treadle.connection.connection import Connection
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.protocol import notifications as n
from treadle.protocol.client_requests import (
    INITIALIZE,
    THREAD_LIST,
    THREAD_RESUME,
    THREAD_START,
    TURN_START,
)
from treadle.protocol.delta import AgentMessageDeltaNotification
from treadle.protocol.initialize import ClientInfo, InitializeParams
from treadle.protocol.input import TextUserInput
from treadle.protocol.item import AgentMessageThreadItem, UserMessageThreadItem
from treadle.protocol.server_requests import SERVER_REQUESTS
from treadle.protocol.thread import ThreadResumeParams, ThreadStartParams
from treadle.protocol.thread_manage import ThreadListParams
from treadle.protocol.turn import TurnCompletedNotification, TurnStartParams
from treadle.transport.base import Transport
from treadle.transport.subprocess import SubprocessTransport, spawn
from treadle.transport.unix import connect_unix
from treadle.transport.websocket import connect_websocket

_SERVER = [sys.executable, "-m", "treadle", "app-server"]
_QUESTION = "What can you do for me?"


def demo() -> int:
    """Run the demonstration."""
    print("Treadle: a second Codex app-server. No key, no network, nothing left behind.")
    with tempfile.TemporaryDirectory(prefix="treadle-demo-") as folder:
        asyncio.run(_demo(Path(folder)))
    print("\nEvery server above was a real process; all of them have ended.")
    return 0


async def _demo(folder: Path) -> None:
    # A home of its own and no keys: the built-in scripted model answers.
    environ = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    environ["TREADLE_HOME"] = str(folder / "home")
    work = folder / "work"
    work.mkdir()
    thread_id = await _first_turn(environ, work)
    await _after_the_kill(environ, thread_id)
    await _other_transports(folder, environ)


async def _first_turn(environ: dict[str, str], work: Path) -> str:
    print("\n1. An editor starts `treadle app-server` and speaks JSON lines to it")
    server = spawn(_SERVER, env=environ)
    async with _client(server) as client:
        started = await client.connection.request(THREAD_START, ThreadStartParams(cwd=str(work)))
        thread = started.thread
        print(f"   thread/start  -> {thread.id} on {started.model}")
        print(f"   turn/start    -> {_QUESTION!r}\n")
        await client.ask(thread.id, _QUESTION)
        print("\n2. The server is killed: kill -9", server.pid)
        os.kill(server.pid, signal.SIGKILL)
    return thread.id


async def _after_the_kill(environ: dict[str, str], thread_id: str) -> None:
    print("\n3. A new server on the same home: nothing is missing")
    async with _client(spawn(_SERVER, env=environ)) as client:
        page = await client.connection.request(THREAD_LIST, ThreadListParams())
        print(f"   thread/list   -> {[thread.preview for thread in page.data]}")
        resumed = await client.connection.request(
            THREAD_RESUME, ThreadResumeParams(thread_id=thread_id)
        )
        for turn in resumed.thread.turns:
            print(f"   thread/resume -> turn {turn.status}, {len(turn.items)} items")
            for item in turn.items:
                if isinstance(item, UserMessageThreadItem):
                    words = [part.text for part in item.content if isinstance(part, TextUserInput)]
                    print(f"      user:  {' '.join(words)}")
                elif isinstance(item, AgentMessageThreadItem):
                    print(f"      agent: {item.text.splitlines()[0]}")


async def _other_transports(folder: Path, environ: dict[str, str]) -> None:
    print("\n4. The same server on other transports")
    token = folder / "token"
    token.write_text("a-secret-of-this-demo")
    token.chmod(0o600)
    flags = ["--ws-auth", "capability-token", "--ws-token-file", str(token)]
    async with _listening(["--listen", "ws://127.0.0.1:0", *flags], environ) as banner:
        url = banner.split("listening on: ", 1)[1].split()[0]
        async with _client(await connect_websocket(url, token=token.read_text())) as client:
            print(f"   WebSocket     -> {client.about}")
    socket = folder / "control.sock"
    flags = ["--listen", f"unix://{socket}"]
    async with _listening(flags, environ, ready=socket), _unix_client(socket) as client:
        print(f"   unix socket   -> {client.about}")


@asynccontextmanager
async def _unix_client(socket: Path) -> AsyncIterator[_Client]:
    async with _client(await connect_unix(socket)) as client:
        yield client


class _Client:
    """A client of a few lines: prints what streams in, and knows when a turn has ended."""

    def __init__(self, transport: Transport) -> None:
        router: Router[None] = Router(SERVER_REQUESTS)
        router.notification(n.ITEM_AGENT_MESSAGE_DELTA)(self._on_delta)
        router.notification(n.TURN_COMPLETED)(self._on_completed)
        self.connection = Connection(transport, router, None)
        self.about = ""
        self._ended = asyncio.Event()

    async def greet(self) -> None:
        params = InitializeParams(client_info=ClientInfo(name="demo", version="1"))
        started = time.perf_counter()
        self.about = (await self.connection.request(INITIALIZE, params)).user_agent
        took = (time.perf_counter() - started) * 1000
        self.about += f", initialize answered in {took:.0f} ms"

    async def ask(self, thread_id: str, text: str) -> None:
        self._ended.clear()
        params = TurnStartParams(input=[TextUserInput(text)], thread_id=thread_id)
        await self.connection.request(TURN_START, params)
        async with asyncio.timeout(30):
            await self._ended.wait()

    def _on_delta(self, _ctx: Context[None], params: AgentMessageDeltaNotification) -> None:
        print(params.delta, end="", flush=True)

    def _on_completed(self, _ctx: Context[None], params: TurnCompletedNotification) -> None:
        print(f"\n   turn/completed: {params.turn.status} in {params.turn.duration_ms} ms")
        self._ended.set()


@asynccontextmanager
async def _client(transport: Transport) -> AsyncIterator[_Client]:
    client = _Client(transport)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.connection.run())
        await client.greet()
        yield client
        await client.connection.close()


@asynccontextmanager
async def _listening(
    flags: list[str], environ: dict[str, str], *, ready: Path | None = None
) -> AsyncIterator[str]:
    """A server that listens; gives its banner once it does."""
    server = spawn([*_SERVER, *flags], env=environ)
    try:
        async with asyncio.timeout(10):
            while not _is_up(server, ready):  # noqa: ASYNC110 - another process, no event of ours
                await asyncio.sleep(0.01)
        yield server.stderr_tail
    finally:
        os.kill(server.pid, signal.SIGTERM)
        await server.close()


def _is_up(server: SubprocessTransport, ready: Path | None) -> bool:
    if server.exit_code is not None:
        raise RuntimeError(server.stderr_tail)
    return "note:" in server.stderr_tail if ready is None else ready.exists()
