"""`treadle app-server`: runs the server until its client disconnects or a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from treadle.cli.options import ServerOptions
from treadle.config.configuration import Configuration
from treadle.config.file import ConfigError, Overrides, load_config
from treadle.server.fast_handshake import FastHandshake, leave_on_signals
from treadle.server.server import Server
from treadle.support import logs
from treadle.support.files.descriptors import raise_descriptor_limit
from treadle.support.home import home_folder

if TYPE_CHECKING:
    from treadle.transport.admission import ConnectionLimits
    from treadle.transport.unix import UnixListener
    from treadle.transport.websocket.listener import WebSocketListener

STOP_SECONDS: Final = 1.6
_EXPECTED: Final = "expected `stdio://`, `unix://`, `unix://PATH`, `ws://IP:PORT`, or `off`"


class StartError(Exception):
    """The server cannot start; the message has the reason."""


class WebSocketAddress(NamedTuple):
    """The address of a WebSocket listener."""

    host: str
    port: int


def start(options: ServerOptions, early: FastHandshake | None) -> int:
    """Run a server with the options of the command line."""
    leave_on_signals()
    logs.configure()
    raise_descriptor_limit()
    url = options.listen
    if url.startswith("ws:"):
        parse_listen(url)
    elif url not in ("stdio://", "off") and not url.startswith("unix://"):
        _refuse_url(url, f"unsupported --listen URL `{url}`; {_EXPECTED}")
    try:
        overrides = _overrides(options)
        if options.strict_config:
            load_config(Path(home_folder()), overrides, is_strict=True)
    except ConfigError as error:
        raise StartError(error) from error
    if url == "stdio://" and (sys.stdin is None or sys.stdout is None):
        return 0  # started with a closed descriptor: cannot read requests or write answers
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(_run(options, url, early, overrides))
    return 0


def parse_listen(url: str) -> WebSocketAddress:
    """Parse `ws://IP:PORT`; a host name is refused because it may have several addresses."""
    import ipaddress  # only this transport needs it

    match = re.fullmatch(r"ws://(?P<host>[^/:]+|\[[^]]+\]):(?P<port>\d{1,5})", url)
    try:
        host = str(ipaddress.ip_address(match["host"].strip("[]"))) if match else ""
    except ValueError:
        host = ""
    if match is None or not host or int(match["port"]) >= 2**16:
        _refuse_url(url, f"invalid websocket --listen URL `{url}`; expected `ws://IP:PORT`")
    return WebSocketAddress(host, int(match["port"]))


def _refuse_url(url: str, reason: str) -> NoReturn:
    print(f"error: invalid value '{url}' for '--listen <URL>': {reason}", file=sys.stderr)
    print("\nFor more information, try '--help'.", file=sys.stderr)
    raise SystemExit(2)


async def _run(
    options: ServerOptions, url: str, early: FastHandshake | None, overrides: Overrides
) -> None:
    server = Server(configuration=Configuration(Path(home_folder()), overrides))
    close: Callable[[], None] | None = None
    try:
        _on_signals(_cancel_this_task())
        serve, close = await _open(server, options, url, early)
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(serve, name=url)
            _on_signals(partial(_stop, server, work))
    finally:
        # Also needed when a signal cancels serving before its first step.
        if close is not None:
            close()
        await server.close()


def _on_signals(action: Callable[[], object]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, action)


def _cancel_this_task() -> Callable[[], object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("not in a task")
    return task.cancel


def _overrides(options: ServerOptions) -> Overrides:
    return Overrides.parse(options.config, enable=options.enable, disable=options.disable)


def _stop(server: Server, work: asyncio.Task[None]) -> None:
    """End on a signal, after pending answers or at most `STOP_SECONDS`."""
    is_first = not server.is_finishing
    server.finish()
    if server.sessions and is_first:
        asyncio.get_running_loop().call_later(STOP_SECONDS, work.cancel)
        server.when_idle(work.cancel)
    else:
        work.cancel()


async def _open(
    server: Server, options: ServerOptions, url: str, early: FastHandshake | None
) -> tuple[Coroutine[None, None, None], Callable[[], None] | None]:
    """Open the transport; return the coroutine that serves it and the function that closes it."""
    if url == "stdio://":
        from treadle.transport.stdio import stdio

        early = early or FastHandshake(None, b"")
        return server.attach(stdio(early.unread), answered=early.answered), None
    if url == "off":
        return _wait_forever(), None
    listener: WebSocketListener | UnixListener
    if url.startswith("ws:"):
        listener = await _listen_websocket(parse_listen(url), options)
    else:
        listener = await _listen_unix(url.removeprefix("unix://"), options)
    return server.serve(listener), listener.close


async def _listen_websocket(address: WebSocketAddress, options: ServerOptions) -> WebSocketListener:
    from treadle.transport.auth import AuthConfigError, auth_from_flags
    from treadle.transport.websocket.listener import WebSocketListener

    try:
        auth = auth_from_flags(
            options.ws_auth,
            token_file=options.ws_token_file,
            token_sha256=options.ws_token_sha256,
            shared_secret_file=options.ws_shared_secret_file,
            issuer=options.ws_issuer,
            audience=options.ws_audience,
            max_clock_skew_seconds=options.ws_max_clock_skew_seconds,
        )
        limits = _limits(options)
        listener = WebSocketListener(address.host, address.port, auth=auth, limits=limits)
        await listener.start()
    except (AuthConfigError, OSError) as error:
        raise StartError(error) from error
    host, port = listener.address
    _print_banner(f"[{host}]" if ":" in host else host, port, has_auth=auth is not None)
    return listener


def _print_banner(host: str, port: int, *, has_auth: bool) -> None:
    """Print the address in upstream's layout: tools read the port from it."""
    lines = [
        "treadle app-server (WebSockets)",
        f"  listening on: ws://{host}:{port}",
        f"  readyz: http://{host}:{port}/readyz",
        f"  healthz: http://{host}:{port}/healthz",
        "  note: clients must authenticate"
        if has_auth
        else "  note: binds localhost only (use SSH port-forwarding for remote access)",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _limits(options: ServerOptions) -> ConnectionLimits:
    from treadle.transport.admission import ConnectionLimits

    return ConnectionLimits.default(
        total=options.max_connections,
        strangers=options.max_strangers,
        initialize_seconds=options.initialize_timeout_seconds,
    )


async def _listen_unix(path: str, options: ServerOptions) -> UnixListener:
    from treadle.transport.unix import SocketPathError, UnixListener

    home = Path(home_folder())
    socket = Path(path) if path else home / "app-server-control" / "app-server-control.sock"
    listener = UnixListener(socket, limits=_limits(options))
    try:
        await listener.start()
    except (SocketPathError, OSError) as error:
        raise StartError(error) from error
    return listener


async def _wait_forever() -> None:
    await asyncio.Event().wait()
