"""Connectors: connections to a server over a child process, WebSocket, unix socket or memory."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from treadle.client._runtime.find import find_command
from treadle.client.errors import ServerUnavailable
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.transport.base import Transport, TransportError


class Attachable(Protocol):
    """A server in this process."""

    async def attach(self, transport: Transport) -> None:
        """Serve one client until it disconnects."""
        ...


Dial: TypeAlias = Callable[[BackgroundTasks], Awaitable[Transport]]
"""Opens a transport; tasks that it starts belong to the client and end with it."""


@dataclass(frozen=True, slots=True)
class Connector:
    """Opens connections to one server: made by `connector_of`, or custom."""

    dial: Dial
    can_return: bool
    """Whether a new connection can reach the same server; enables reconnection by default."""
    is_local: bool = True
    """Whether the server shares this machine's file system."""

    async def connect(self, tasks: BackgroundTasks) -> Transport:
        """Open a transport.

        Raises:
            ServerUnavailable: the server cannot be reached.
        """
        try:
            return await self.dial(tasks)
        except TransportError as error:
            # A server that answers with a refusal will refuse again.
            is_final = hasattr(error, "status")
            raise ServerUnavailable(str(error), is_final=is_final) from error


Where: TypeAlias = str | Path | Sequence[str] | Attachable | Connector
"""A ws:// or unix:// URL, the name or path of a program, the path of a socket, a command, a server
in this process, or a custom connector; a `Path` is a program if it names a regular file."""

_WEBSOCKET: Final = ("ws://", "wss://")
_UNIX: Final = "unix://"


def connector_of(
    where: Where | None,
    *,
    token: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Connector:
    """Return the connector for a server; `None` selects a server installed on this machine.

    Raises:
        TypeError: the type of the value is not supported.
        ValueError: the value is empty, or a URL with an unsupported scheme.
    """
    if isinstance(where, Connector):
        return where
    _check(where)
    if isinstance(where, str) and where.startswith(_WEBSOCKET):
        return websocket(where, token)
    if isinstance(where, str) and where.startswith(_UNIX):
        return unix(Path(where.removeprefix(_UNIX)))
    if isinstance(where, Path):
        is_program = where.is_file()
        return spawned(None, str(where.absolute()), cwd, env) if is_program else unix(where)
    if where is None or isinstance(where, str):
        return spawned(None, where, cwd, env)
    if isinstance(where, Sequence):
        return spawned(where, None, cwd, env)
    return in_process(where)


def _check(where: object) -> None:
    # Each byte would become an argument of a command.
    is_sequence = isinstance(where, Sequence) and not isinstance(where, bytes)
    if not (is_sequence or isinstance(where, Path | None) or hasattr(where, "attach")):
        raise TypeError(
            f"invalid server {where!r}: expected a URL, a path, a command, a server or a Connector"
        )
    if is_sequence and not where:
        raise ValueError(f"invalid server {where!r}: must not be empty")
    if isinstance(where, str) and "://" in where and not where.startswith((*_WEBSOCKET, _UNIX)):
        raise ValueError(f"invalid server URL {where!r}: use ws://, wss:// or unix://")


def spawned(
    command: Sequence[str] | None,
    name: str | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
) -> Connector:
    """Return a connector to a child process; `env` extends this process's environment."""
    environ = {**os.environ, **(env or {})}

    async def dial(_tasks: BackgroundTasks) -> Transport:
        from treadle.transport.subprocess import spawn

        _check_folder(cwd)
        argv = command or find_command(name, environ, workspace=cwd)
        return spawn(argv, cwd=cwd, env=environ)

    return Connector(dial, can_return=False)


def _check_folder(cwd: str | None) -> None:
    """Check the folder first: the system's error does not say what was not found."""
    if cwd is not None and not Path(cwd).is_dir():
        raise ServerUnavailable(f"cannot start the server: no folder {cwd!r}")


def websocket(url: str, token: str | None) -> Connector:
    """Return a connector to a WebSocket server."""

    async def dial(_tasks: BackgroundTasks) -> Transport:
        from treadle.transport.websocket.listener import connect_websocket

        return await connect_websocket(url, token=token)

    return Connector(dial, can_return=True, is_local=False)


def unix(path: Path) -> Connector:
    """Return a connector to a server on a unix socket."""

    async def dial(_tasks: BackgroundTasks) -> Transport:
        from treadle.transport.unix import connect_unix

        return await connect_unix(path)

    return Connector(dial, can_return=True)


def in_process(server: Attachable) -> Connector:
    """Return a connector to a server in this process, over memory."""

    async def dial(tasks: BackgroundTasks) -> Transport:
        from treadle.transport.memory import memory_pair

        ours, theirs = memory_pair()
        tasks.spawn(server.attach(theirs), "server side")
        return ours

    return Connector(dial, can_return=True)
