"""The ways to a server: a child process, a WebSocket, a unix socket, memory."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from treadle.client.errors import ServerUnavailable
from treadle.client.find import find_command
from treadle.support.tasks import Nursery
from treadle.transport.base import Transport, TransportError


class Attachable(Protocol):
    """A server in this process."""

    async def attach(self, transport: Transport) -> None:
        """Converse with one client until it hangs up."""
        ...


Dial: TypeAlias = Callable[[Nursery], Awaitable[Transport]]
Where: TypeAlias = str | Path | Sequence[str] | Attachable
"""A ws:// or unix:// URL, the name or path of a program, the path of a socket, a command, or a
server in this process."""


@dataclass(frozen=True, slots=True)
class Connector:
    """How to reach one server, and whether another try may reach the same one again."""

    dial: Dial
    can_return: bool
    is_local: bool = True

    async def connect(self, tasks: Nursery) -> Transport:
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


_WEBSOCKET: Final = ("ws://", "wss://")
_UNIX: Final = "unix://"


def connector_of(
    where: Where | None,
    *,
    token: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Connector:
    """The way to what the caller names; `None` is a server found on this machine."""
    if isinstance(where, str) and where.startswith(_WEBSOCKET):
        return websocket(where, token)
    if isinstance(where, str) and where.startswith(_UNIX):
        return unix(Path(where.removeprefix(_UNIX)))
    if isinstance(where, Path):
        return unix(where)
    if where is None or isinstance(where, str):
        return spawned(None, where, cwd, env)
    if isinstance(where, Sequence):
        return spawned(where, None, cwd, env)
    return in_process(where)


def spawned(
    command: Sequence[str] | None,
    name: str | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
) -> Connector:
    """A child process; it gets this process's environment and `env` on top."""
    environ = {**os.environ, **(env or {})}

    async def dial(_tasks: Nursery) -> Transport:
        from treadle.transport.subprocess import spawn

        return spawn(command or find_command(name, environ), cwd=cwd, env=environ)

    return Connector(dial, can_return=False)


def websocket(url: str, token: str | None) -> Connector:
    """A server that listens on an address."""

    async def dial(_tasks: Nursery) -> Transport:
        from treadle.transport.websocket import connect_websocket

        return await connect_websocket(url, token=token)

    return Connector(dial, can_return=True, is_local=False)


def unix(path: Path) -> Connector:
    """A server that listens on a socket of this machine."""

    async def dial(_tasks: Nursery) -> Transport:
        from treadle.transport.unix import connect_unix

        return await connect_unix(path)

    return Connector(dial, can_return=True)


def in_process(server: Attachable) -> Connector:
    """A server in this process, over a line of memory."""

    async def dial(tasks: Nursery) -> Transport:
        from treadle.transport.memory import memory_pair

        ours, theirs = memory_pair()
        tasks.spawn(server.attach(theirs), "server side")
        return ours

    return Connector(dial, can_return=True)
