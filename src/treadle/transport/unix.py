"""The control socket: WebSocket over a unix socket that only its owner can open."""

import asyncio
import errno
import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Final

from treadle.support.listeners import OWN_LISTENERS
from treadle.transport.admission import ConnectionLimits
from treadle.transport.base import Admit, Transport
from treadle.transport.websocket.connection import WebSocketTransport
from treadle.transport.websocket.handshake import (
    Accept,
    Upgrades,
    client_handshake,
    open_upgrade,
    serve_upgrades,
)
from treadle.transport.websocket.http import answer_control_request
from treadle.transport.websocket.listener import connection_errors

MAX_PATH_BYTES: Final = 107
"""The capacity of sun_path on Linux, without its final NUL."""

_BACKLOG: Final = 1024


class SocketPathError(Exception):
    """A path cannot serve as a control socket."""


class SocketInUse(SocketPathError):
    """Another server answers on the path."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"app-server control socket is already in use at {path}")
        self.path = path


class UnixListener:
    """Listens on a unix socket of mode 0600, which is removed at the end."""

    def __init__(self, path: str | Path, *, limits: ConnectionLimits | None = None) -> None:
        self.path = Path(path)
        self._limits = limits
        self._lock: int | None = None
        self._socket: socket.socket | None = None
        self._inode: int | None = None
        # As clients spell it, and with links resolved.
        self._places: set[str] = set()

    async def start(self) -> None:
        """Take the path and listen; peers that connect before serve() wait.

        Raises:
            SocketInUse: another server has the path.
            SocketPathError: the path is too long, or is taken by a file that is not a socket.
            OSError: the folder cannot be created or written.
        """
        _check_length(self.path)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock(self.path)
        try:
            _clear(self.path)
            self._socket = _bind(self.path)
            self._inode = self.path.lstat().st_ino
            self._places = {str(self.path.absolute()), str(self.path.resolve())}
            for place in self._places:
                OWN_LISTENERS.add(place)
        except BaseException:
            self.close()
            raise

    async def serve(self, accept: Accept, *, admit: Admit | None = None) -> None:
        """Run accept(transport) for each admitted connection, until cancelled."""
        if self._socket is None:
            await self.start()
        assert self._socket is not None  # noqa: S101 - start() set it
        upgrades = Upgrades(
            answer=answer_control_request,
            refuse=lambda _: None,
            name_peer=lambda _: "unix",
            # The kernel reports the death of a local peer at once, and a stopped one does no harm.
            keepalive=None,
            limits=self._limits,
            admit=admit,
        )
        try:
            await serve_upgrades(self._socket, accept, upgrades)
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening, remove the socket, and release the path."""
        if self._socket is not None:
            self._socket.close()
            for place in self._places:
                OWN_LISTENERS.remove(place)
            if _inode(self.path) == self._inode:
                self.path.unlink()
            self._socket = None
        if self._lock is not None:
            # Removed while locked: a process that opened it meanwhile detects the replacement.
            _lock_path(self.path).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


async def connect_unix(path: str | Path, *, open_timeout: float = 10.0) -> Transport:
    """Connect to a control socket.

    Raises:
        UpgradeRefused: the server refused the upgrade.
        TransportError: there is no server, no response in time, or an invalid one.
        SocketPathError: the path is too long.
    """
    _check_length(Path(path))
    transport = WebSocketTransport("unix", is_client=True, keepalive=None)
    with connection_errors(str(path), open_timeout):
        async with asyncio.timeout(open_timeout):
            loop = asyncio.get_running_loop()
            _, handshake = await loop.create_unix_connection(client_handshake, str(path))
            await open_upgrade(handshake, transport, "/rpc", "localhost", ())
    return transport


def _check_length(path: Path) -> None:
    size = len(os.fsencode(path))
    if size > MAX_PATH_BYTES:
        raise SocketPathError(
            f"control socket path is {size} bytes long, expected at most {MAX_PATH_BYTES}: {path}"
        )


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _lock(path: Path) -> int:
    """Take the path's lock file for as long as the descriptor is open."""
    while True:
        lock = os.open(_lock_path(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise SocketInUse(path) from None
        if _inode(_lock_path(path)) == os.fstat(lock).st_ino:
            return lock
        # The previous owner removed it between our open and our lock.
        os.close(lock)


def _clear(path: Path) -> None:
    """Remove the socket of a dead server, or a link to one, and nothing else."""
    try:
        # Follows links: the reference's path is a link to a socket in the temporary folder.
        mode = path.stat().st_mode
    except FileNotFoundError:
        path.unlink(missing_ok=True)  # a link whose target was cleaned up
        return
    if not stat.S_ISSOCK(mode):
        raise SocketPathError(f"the file at {path} is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        # Any other result, including a full backlog, means that a server has it.
        if probe.connect_ex(os.fsencode(path)) != errno.ECONNREFUSED:
            raise SocketInUse(path)
    path.unlink()


def _bind(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Not chmod afterwards: others could connect in between.
    previous_mask = os.umask(0o177)
    try:
        server.bind(os.fsencode(path))
        server.listen(_BACKLOG)
        server.settimeout(0)
    except BaseException:
        server.close()
        raise
    finally:
        os.umask(previous_mask)
    return server


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None
