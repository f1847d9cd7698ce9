"""Shows what works, live: a real server process, spoken to over each of its transports."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from treadle.connection.connection import Connection
from treadle.connection.router import Router
from treadle.protocol.client_requests import INITIALIZE, MOCK_EXPERIMENTAL_METHOD, THREAD_READ
from treadle.protocol.feature import MockExperimentalMethodParams
from treadle.protocol.initialize import ClientInfo, InitializeCapabilities, InitializeParams
from treadle.protocol.server_requests import SERVER_REQUESTS
from treadle.protocol.thread_manage import ThreadReadParams
from treadle.rpc.errors import RpcError
from treadle.transport.base import Transport
from treadle.transport.subprocess import spawn
from treadle.transport.unix import connect_unix
from treadle.transport.websocket import connect_websocket

_SERVER = [sys.executable, "-m", "treadle", "app-server"]


def demo() -> int:
    """Run the demonstration."""
    print("Treadle: a second Codex app-server. No key, no network, nothing left behind.\n")
    with tempfile.TemporaryDirectory(prefix="treadle-demo-") as home:
        asyncio.run(_demo(Path(home)))
    print("\nEvery server above was a real process; all of them have ended.")
    return 0


async def _demo(home: Path) -> None:
    environ = {**os.environ, "TREADLE_HOME": str(home)}
    print("1. stdio: `treadle app-server`, the way an editor starts it")
    await _converse(spawn(_SERVER, env=environ))

    print("\n2. WebSocket: `treadle app-server --listen ws://127.0.0.1:0` with a capability token")
    token = home / "token"
    token.write_text("a-secret-of-this-demo")
    token.chmod(0o600)
    flags = ["--ws-auth", "capability-token", "--ws-token-file", str(token)]
    async with _listening(["--listen", "ws://127.0.0.1:0", *flags], environ) as banner:
        url = re.search(r"ws://\S+", banner)
        if url is None:
            raise RuntimeError(banner)
        await _converse(await connect_websocket(url[0], token=token.read_text()))

    print("\n3. Unix socket: `treadle app-server --listen unix://PATH`, mode 0600")
    socket = home / "control.sock"
    async with _listening(["--listen", f"unix://{socket}"], environ, ready=socket):
        await _converse(await connect_unix(socket))


@asynccontextmanager
async def _listening(
    flags: list[str], environ: dict[str, str], *, ready: Path | None = None
) -> AsyncIterator[str]:
    """A server process that listens; gives its banner."""
    process = subprocess.Popen(  # noqa: ASYNC220 - started once, before anything else runs
        [*_SERVER, *flags], env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        banner = await asyncio.to_thread(_read_banner, process, ready)
        yield banner
    finally:
        process.terminate()
        process.communicate()


def _read_banner(process: subprocess.Popen[str], ready: Path | None) -> str:
    if ready is not None:
        while not ready.exists() and process.poll() is None:
            time.sleep(0.01)
        return ""
    lines: list[str] = []
    while process.stderr is not None and (line := process.stderr.readline()):
        lines.append(line)
        if "note:" in line:
            break
    return "".join(lines)


async def _converse(transport: Transport) -> None:
    """Shake hands, be answered, be refused, and be answered again."""
    connection = Connection(transport, Router[None](SERVER_REQUESTS), None)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(connection.run())
        started = time.perf_counter()
        about = await connection.request(
            INITIALIZE,
            InitializeParams(
                client_info=ClientInfo(name="demo", version="1"),
                capabilities=InitializeCapabilities(experimental_api=True),
            ),
        )
        took = (time.perf_counter() - started) * 1000
        print(f"   initialize             -> {about.user_agent}  ({took:.0f} ms)")
        echo = await connection.request(
            MOCK_EXPERIMENTAL_METHOD, MockExperimentalMethodParams(value="hello")
        )
        print(f"   mock/experimentalMethod -> {echo.echoed!r}")
        try:
            await connection.request(THREAD_READ, ThreadReadParams(thread_id="thr_1"))
        except RpcError as error:
            print(f"   thread/read             -> refused: {error.message} ({error.kind})")
        await connection.close()
