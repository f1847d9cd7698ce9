"""The process that a client of the fake starts: its pipes lead to the fake in the test's process.

A standalone program, started by its path; it imports nothing of the package, so that it starts
fast. Its input goes to the socket unchanged. The socket returns commands: a letter, the length in
four bytes, and the payload. `o` and `e` are written to stdout and stderr, `x` is the exit code, `f`
stops reading permanently.
"""

from __future__ import annotations

import os
import select
import socket
import sys

STDIN, STDOUT, STDERR = 0, 1, 2
HEAD = 5


def main(path: str) -> None:
    """Relay bytes until either side ends."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    watched: list[int] = [STDIN, connection.fileno()]
    received = bytearray()
    while True:
        ready, _, _ = select.select(watched, [], [])
        if STDIN in ready and STDIN in watched and not forward(connection):
            watched.remove(STDIN)
        if connection.fileno() in ready:
            data = connection.recv(1 << 20)
            if not data:
                return
            received += data
            execute(received, watched)


def forward(connection: socket.socket) -> bool:
    """Forward input of the client; return false at its end."""
    data = os.read(STDIN, 1 << 16)
    if data:
        connection.sendall(data)
    else:
        connection.shutdown(socket.SHUT_WR)
    return bool(data)


def execute(received: bytearray, watched: list[int]) -> None:
    """Execute the complete commands."""
    while len(received) >= HEAD:
        size = int.from_bytes(received[1:HEAD], "big")
        if len(received) < HEAD + size:
            return
        letter, payload = chr(received[0]), bytes(received[HEAD : HEAD + size])
        del received[: HEAD + size]
        if letter == "x":
            # Not sys.exit: Python's shutdown must not change the code.
            os._exit(int(payload))
        elif letter == "f":
            watched[:] = [each for each in watched if each != STDIN]
        else:
            write(STDOUT if letter == "o" else STDERR, payload)


def write(descriptor: int, data: bytes) -> None:
    """Write everything; a disconnected client ends the process."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (BrokenPipeError, ConnectionError):
        sys.exit(1)
