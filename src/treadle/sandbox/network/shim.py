"""Runs in the sandbox before the command, connects it to the egress proxy, and becomes it.

In the command's own network namespace it listens on the address of the proxy, and passes the
listening socket to the server. Nothing of it remains in the sandbox.

The interpreter receives it as text, so it reads no file and imports nothing of this package.
"""

# The command waits for this; importing socket and signal would double the time.
from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed leaves it out
import _socket
import os
import resource
import sys
import time

_BACKLOG, _ETOOMANYREFS = 128, 109
_ATTEMPTS, _PAUSE_SECONDS = 50, 0.1


def main() -> None:
    """Pass the listener over the first descriptor, then execute the command that follows."""
    out, port, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    listener = _socket.socket()
    listener.bind(("127.0.0.1", port))
    listener.listen(_BACKLOG)
    line = _socket.socket(fileno=out)
    _hand_over(line, listener.fileno())
    line.close()
    listener.close()
    # The interpreter has changed these.
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, _environment())  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(127)


def _hand_over(line: _socket.socket, descriptor: int) -> None:
    """Send a descriptor.

    The kernel compares all descriptors that the user's processes have in transit with the soft
    limit of the sender; another command may have sent some thousands.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    handed = descriptor.to_bytes(4, sys.byteorder)
    for attempt in range(_ATTEMPTS):
        try:
            line.sendmsg([b"!"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
            break
        except OSError as error:
            if error.errno != _ETOOMANYREFS or attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE_SECONDS)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _environment() -> dict[bytes, bytes]:
    """Return the original environment; the interpreter may have changed its own copy."""
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib is one more import
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)


if __name__ == "__main__":
    main()
