"""Kernel interfaces beside files and sockets: a confined command can use none of them."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from tests.sandbox.commands import PYTHON, run, workspace
from treadle.sandbox.backends.selection import Backend

CALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), "refused")
"""
ATTEMPTS = {
    "netlink": "import _socket as s; s.socket(16, s.SOCK_RAW)",
    "packets": "import _socket as s; s.socket(17, s.SOCK_RAW)",
    "raw IP": "import _socket as s; s.socket(s.AF_INET, s.SOCK_RAW, 1)",
    "virtual machines": "import _socket as s; s.socket(40, s.SOCK_STREAM)",
    "ciphers": "import _socket as s; s.socket(38, s.SOCK_SEQPACKET)",
    "raw local": "import _socket as s; s.socket(s.AF_UNIX, s.SOCK_RAW)",
    "tracing": "call(101, 0, 0, 0, 0)",
    "rings": "call(425, 8, ctypes.create_string_buffer(256))",
    "programs": "call(321, 0, ctypes.create_string_buffer(128), 128)",
    "keys": "call(250, 0, -3, 1)",
    "namespaces": "import os; os.unshare(0x10000000)",
    "mounts": "call(165, b'none', b'/', b'tmpfs', 0, None)",
    "the clock": "import time; time.clock_settime(time.CLOCK_REALTIME, 0)",
    "devices": "import os; os.mknod('device', 0o20666, os.makedev(1, 1)); open('device', 'rb')",
    "leases": "import fcntl; fcntl.fcntl(open('file', 'w'), fcntl.F_SETLEASE, fcntl.F_WRLCK)",
    "notifications": "import fcntl, os; fcntl.fcntl(os.open('.', 0), 1026, 2)",
    "delegations": "import fcntl, os; fcntl.fcntl(os.open('.', 0), 1040, bytes(8))",
    "message queues": "call(68, 0, 0o600)",
    "typing": "import fcntl, os; fcntl.ioctl(os.openpty()[1], 0x5412, b'x')",
}
STATUS = (
    "print(*(line for line in open('/proc/self/status') if line[:3] in ('Cap', 'NoN')), end='')"
)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls have other numbers")
@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
async def test_no_other_interface_leads_out(backend: Backend, ws: Path, attempt: str) -> None:
    script = f"{CALL}\ntry:\n  exec({attempt!r})\nexcept OSError:\n  print('refused')\n"
    done = await run([*PYTHON, script], workspace(ws), cwd=ws)
    assert (done.stdout, done.stderr) == ("refused\n", "")


BY_NUMBER = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for name, *words in (
    ("msgsnd", QUEUE, b"\\1" + bytes(23), 16, 0o4000),
    ("msgrcv", QUEUE, ctypes.create_string_buffer(64), 32, 0, 0o4000),
    ("msgctl", QUEUE, 0, None),
    ("semctl", SET, 0, 16, 42),
    ("semop", SET, b"\\0\\0\\1\\0\\0\\0", 1),
    ("shmctl", SEGMENT, 0, None),
    ("shmat", SEGMENT, None, 0),
    ("mq_unlink", b"/treadle-none"),
):
    print(name, getattr(libc, name)(*words), ctypes.get_errno())
"""


async def test_under_landlock_no_message_queue_of_another_program_can_be_used(
    plain_landlock: Backend, ws: Path
) -> None:
    """Its number is enough to use it: no call of the command opens it."""
    libc = ctypes.CDLL(None, use_errno=True)
    queue, semaphores = libc.msgget(0, 0o600), libc.semget(0, 1, 0o600)
    segment = libc.shmget(0, 4096, 0o600)
    assert min(queue, semaphores, segment) >= 0
    try:
        assert libc.msgsnd(queue, b"\1" + bytes(7) + b"secret\0\0", 8, 0) == 0
        numbers = {"QUEUE": queue, "SET": semaphores, "SEGMENT": segment}
        script = BY_NUMBER
        for word, number in numbers.items():
            script = script.replace(word, str(number))
        done = await run([*PYTHON, script], workspace(ws), cwd=ws)
    finally:
        libc.msgctl(queue, 0, None)
        libc.semctl(semaphores, 0, 0)
        libc.shmctl(segment, 0, None)
    results = [line.split()[1:] for line in done.stdout.splitlines()]
    # The C library changes the error of the last one.
    assert results == [["-1", str(errno.EPERM)]] * 7 + [["-1", str(errno.EACCES)]]


async def test_no_program_gives_a_command_more_rights(backend: Backend, ws: Path) -> None:
    """Neither a set-user-id program nor what root may do."""
    done = await run([*PYTHON, STATUS], workspace(ws), cwd=ws)
    status = dict(line.split() for line in done.stdout.splitlines())
    assert status["NoNewPrivs:"] == "1"
    assert {int(status[f"Cap{kind}:"], 16) for kind in ("Inh", "Prm", "Eff", "Amb")} == {0}
