"""How a guard adds up what its command uses; here the test is the guard."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from treadle.sandbox.supervisor.resource_use import Stopped, Use

FILES = 200
# 0x400 is CLONE_FILES, and 17 the signal at the end of an ordinary child.
SHARED_TABLE = f"""
import ctypes, os, time
libc = ctypes.CDLL(None)
number = 56 if os.uname().machine == "x86_64" else 220
for _ in range(10):
    if libc.syscall(number, 0x400 | 17, 0, 0, 0, 0) == 0:
        time.sleep(60)
        os._exit(0)
for _ in range({FILES}):
    os.open("/dev/null", 0)
"""
EPOLL = """
import os, select
pipe = os.pipe()
files = [os.dup(pipe[0]) for _ in range(200)]
kept = [select.epoll() for _ in range(10)]
for each in kept:
    for file in files:
        each.register(file, 0)
"""


@contextmanager
def child(script: str) -> Iterator[None]:
    """Run a command until it prints that it is ready."""
    ready = "\nprint('ready', flush=True)\nimport sys\nsys.stdin.read()\nos.killpg(0, 9)"
    argv = [sys.executable, "-I", "-S", "-c", script + ready]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        os.killpg(process.pid, 9)


def use(**limits: int) -> Use:
    return Use(limits, 0, lambda: False)


@pytest.mark.skipif(
    Path("/proc/self/fd").stat().st_size == 0, reason="the kernel does not count files"
)
def test_processes_that_share_their_open_files_count_them_once() -> None:
    before = use(open_files=10**6)
    before.add_up()
    with child(SHARED_TABLE):
        after = use(open_files=10**6)
        after.add_up()
    # Other children of the test's process may have ended in the meantime.
    assert FILES <= after.files < before.files + 2 * FILES


def test_registrations_with_epoll_are_counted() -> None:
    with child(EPOLL):
        found = use(open_files=10**6, epoll_watches=10**6)
        found.add_up()
        assert found.epoll_watches >= 2000
        over = use(open_files=10**6, epoll_watches=1000)
        over.add_up()
        assert over.is_over("epoll_watches", 1000)


def test_a_scan_ends_when_the_command_is_to_be_killed() -> None:
    """Scanning millions of open files, the guard once noticed this 46 seconds later."""
    with child(EPOLL), pytest.raises(Stopped):
        Use({"memory": 2**40}, 0, lambda: True).add_up()
