"""The process that a client of the fake starts: its pipes lead to the fake in the test's process.

A program by itself, started by its path; it imports nothing of the package, so that it starts fast.
What it reads goes to the socket as it is. What comes from there are commands: a letter, the length
as four bytes, and so many bytes. `o` and `e` are written to stdout and stderr, `x` is the exit
code, `f` stops reading for ever.
"""

from __future__ import annotations

import os
import select
import socket
import sys

STDIN, STDOUT, STDERR = 0, 1, 2
HEAD = 5


def main(path: str) -> None:
    """Carry bytes until either side ends."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    watched: list[int] = [STDIN, line.fileno()]
    received = bytearray()
    while True:
        ready, _, _ = select.select(watched, [], [])
        if STDIN in ready and STDIN in watched and not forward(line):
            watched.remove(STDIN)
        if line.fileno() in ready:
            data = line.recv(1 << 20)
            if not data:
                return
            received += data
            obey(received, watched)


def forward(line: socket.socket) -> bool:
    """Pass on what the client said; false when it has no more to say."""
    data = os.read(STDIN, 1 << 16)
    if data:
        line.sendall(data)
    else:
        line.shutdown(socket.SHUT_WR)
    return bool(data)


def obey(received: bytearray, watched: list[int]) -> None:
    """Carry out the commands that are whole."""
    while len(received) >= HEAD:
        size = int.from_bytes(received[1:HEAD], "big")
        if len(received) < HEAD + size:
            return
        letter, payload = chr(received[0]), bytes(received[HEAD : HEAD + size])
        del received[: HEAD + size]
        if letter == "x":
            # Not sys.exit: nothing that Python does at its end may change the code.
            os._exit(int(payload))
        elif letter == "f":
            watched[:] = [each for each in watched if each != STDIN]
        else:
            write(STDOUT if letter == "o" else STDERR, payload)


def write(descriptor: int, data: bytes) -> None:
    """Write everything; a client that has gone away ends the process."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (BrokenPipeError, ConnectionError):
        sys.exit(1)
