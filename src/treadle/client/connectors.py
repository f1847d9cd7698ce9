"""The ways to a server: a child process, a WebSocket, a unix socket, memory."""

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
        """Converse with one client until it hangs up."""
        ...


Dial: TypeAlias = Callable[[BackgroundTasks], Awaitable[Transport]]
"""Opens a line; the tasks that it needs besides are the client's, and end with it."""


@dataclass(frozen=True, slots=True)
class Connector:
    """A way to one server: those of `connector_of`, or one of your own."""

    dial: Dial
    can_return: bool
    """Whether another try may reach the same server again: then a broken line is mended."""
    is_local: bool = True
    """Whether the server sees the files of this machine."""

    async def connect(self, tasks: BackgroundTasks) -> Transport:
        """Open a line.

        Raises:
            ServerUnavailable: there is nobody to talk to.
        """
        try:
            return await self.dial(tasks)
        except TransportError as error:
            # A server that answers with a refusal will refuse again.
            is_final = hasattr(error, "status")
            raise ServerUnavailable(str(error), is_final=is_final) from error


Where: TypeAlias = str | Path | Sequence[str] | Attachable | Connector
"""A ws:// or unix:// URL, the name or path of a program, the path of a socket, a command, a server
in this process, or a way of one's own; a `Path` is a program if it leads to a file."""

_WEBSOCKET: Final = ("ws://", "wss://")
_UNIX: Final = "unix://"


def connector_of(
    where: Where | None,
    *,
    token: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Connector:
    """The way to what the caller names; `None` is a server found on this machine.

    Raises:
        TypeError: nothing of this kind leads to a server.
        ValueError: it names none.
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
    # Each of the bytes would be a word of a command.
    is_sequence = isinstance(where, Sequence) and not isinstance(where, bytes)
    if not (is_sequence or isinstance(where, Path | None) or hasattr(where, "attach")):
        raise TypeError(f"{where!r} is no way to a server")
    if is_sequence and not where:
        raise ValueError(f"{where!r} names no server")
    if isinstance(where, str) and "://" in where and not where.startswith((*_WEBSOCKET, _UNIX)):
        raise ValueError(f"{where!r} is no way to a server: use ws://, wss:// or unix://")


def spawned(
    command: Sequence[str] | None,
    name: str | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
) -> Connector:
    """A child process; it gets this process's environment and `env` on top."""
    environ = {**os.environ, **(env or {})}

    async def dial(_tasks: BackgroundTasks) -> Transport:
        from treadle.transport.subprocess import spawn

        _check_folder(cwd)
        found = command or find_command(name, environ, workspace=cwd)
        return spawn(found, cwd=cwd, env=environ)

    return Connector(dial, can_return=False)


def _check_folder(cwd: str | None) -> None:
    """Find out by ourselves: the system only says that something was not found."""
    if cwd is not None and not Path(cwd).is_dir():
        raise ServerUnavailable(f"there is no folder {cwd!r} to start a server in")


def websocket(url: str, token: str | None) -> Connector:
    """A server that listens on an address."""

    async def dial(_tasks: BackgroundTasks) -> Transport:
        from treadle.transport.websocket.listener import connect_websocket

        return await connect_websocket(url, token=token)

    return Connector(dial, can_return=True, is_local=False)


def unix(path: Path) -> Connector:
    """A server that listens on a socket of this machine."""

    async def dial(_tasks: BackgroundTasks) -> Transport:
        from treadle.transport.unix import connect_unix

        return await connect_unix(path)

    return Connector(dial, can_return=True)


def in_process(server: Attachable) -> Connector:
    """A server in this process, over a line of memory."""

    async def dial(tasks: BackgroundTasks) -> Transport:
        from treadle.transport.memory import memory_pair

        ours, theirs = memory_pair()
        tasks.spawn(server.attach(theirs), "server side")
        return ours

    return Connector(dial, can_return=True)
