"""A program at a real pseudo-terminal, and a person who answers it."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 40.0


def converse(
    command: Sequence[str],
    replies: Sequence[tuple[str, str]],
    *,
    cwd: Path,
    env: Mapping[str, str],
    columns: int = 100,
) -> str:
    """Run a program, type each reply when its prompt appears, and give all that was displayed."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=dict(env),
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        return _displayed(master, list(replies))
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _displayed(master: int, replies: list[tuple[str, str]]) -> str:
    shown, seen = b"", 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if not select.select([master], [], [], 1)[0]:
            continue
        try:
            data = os.read(master, 65536)
        except OSError:  # the program has ended
            break
        if not data:
            break
        shown += data
        if replies and (at := shown.find(replies[0][0].encode(), seen)) >= 0:
            prompt, reply = replies.pop(0)
            seen = at + len(prompt)
            os.write(master, f"{reply}\n".encode())
    text = shown.decode("utf-8", "replace").replace("\r\n", "\n")
    assert not replies, f"no prompt {replies[0][0]!r} in {text!r}"
    return text
