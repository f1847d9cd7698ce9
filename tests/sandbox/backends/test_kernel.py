"""Kernel interfaces beside files and sockets: a confined command can use none of them."""

from __future__ import annotations

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


async def test_no_program_gives_a_command_more_rights(backend: Backend, ws: Path) -> None:
    """Neither a set-user-id program nor what root may do."""
    done = await run([*PYTHON, STATUS], workspace(ws), cwd=ws)
    status = dict(line.split() for line in done.stdout.splitlines())
    assert status["NoNewPrivs:"] == "1"
    assert {int(status[f"Cap{kind}:"], 16) for kind in ("Inh", "Prm", "Eff", "Amb")} == {0}
