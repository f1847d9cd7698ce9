"""Child processes: their lines, their end, and the processes they leave behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from treadle.transport.base import TransportError
from treadle.transport.subprocess import STDERR_LINES, SubprocessTransport, spawn

CAT = "import sys\nfor line in sys.stdin: sys.stdout.write(line); sys.stdout.flush()"


def python(code: str, *arguments: str) -> SubprocessTransport:
    return spawn([sys.executable, "-c", code, *arguments])


async def test_lines_go_both_ways_and_the_exit_code_is_known() -> None:
    async with asyncio.timeout(20):
        child = python(CAT)
        await child.send([b"one", b"x" * 300_000])
        received: list[object] = []
        while len(received) < 2:
            received += await child.receive()
        assert received == [b"one", b"x" * 300_000]
        await child.close()
        await child.close()
    assert (child.exit_code, child.stderr_tail) == (0, "")
    assert not await child.receive()


async def test_the_end_of_a_child_ends_its_lines_after_the_last_one() -> None:
    async with asyncio.timeout(20):
        child = python("print('bye'); import sys; print('why', file=sys.stderr); sys.exit(3)")
        assert await child.receive() == [b"bye"]
        assert not await child.receive()
        await child.close()
    assert (child.exit_code, child.stderr_tail) == (3, "why")


async def test_a_dead_child_accepts_no_more() -> None:
    async with asyncio.timeout(20):
        child = python("")
        assert not await child.receive()
        with pytest.raises(TransportError):
            await child.send([b"x" * 1_000_000])
        await child.close()


async def test_a_signal_shows_in_the_exit_code() -> None:
    async with asyncio.timeout(20):
        child = python(CAT)
        os.kill(child.pid, signal.SIGKILL)
        assert not await child.receive()
        await child.close()
    assert child.exit_code == -signal.SIGKILL


async def test_the_tail_of_stderr_is_kept_and_never_blocks_the_child() -> None:
    code = "import sys\nfor i in range(100_000): print(i, file=sys.stderr)\nprint('done')"
    async with asyncio.timeout(20):
        child = python(code)
        assert await child.receive() == [b"done"]
        await child.close()
    assert child.stderr_tail.splitlines() == [str(n) for n in range(100_000)][-STDERR_LINES:]


async def test_a_missing_program_is_a_transport_error() -> None:
    with pytest.raises(TransportError, match="could not start 'no-such-program'"):
        spawn(["no-such-program"])


async def test_a_relative_program_path_starts_from_our_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent may be able to write the folder it runs in, and put programs into it."""
    work = tmp_path / "work"
    for folder, output in ((tmp_path, "ours"), (work, "theirs")):
        folder.mkdir(exist_ok=True)
        program = folder / "program"
        program.write_text(f"#!/bin/sh\necho {output}\n")
        program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    child = spawn(["./program"], cwd=work)
    assert await child.receive() == [b"ours"]
    await child.close()


async def test_folder_and_environment_are_the_callers(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['NAME'])"
    async with asyncio.timeout(20):
        child = spawn([sys.executable, "-c", code], cwd=tmp_path, env={"NAME": "value"})
        assert await child.receive() == [f"{tmp_path} value".encode()]
        await child.close()


# It ends only when its child has written.
LEAVES_A_CHILD = """
import os, time
reader, writer = os.pipe()
if os.fork() == 0:
    print(os.getpid(), flush=True)
    os.write(writer, b"x")
    time.sleep(1000)
os.read(reader, 1)
"""
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(1000)
time.sleep(1000)
"""


async def test_closing_leaves_no_process_of_the_group_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The child and its own child ignore the end of their input and SIGTERM."""
    monkeypatch.setattr("treadle.transport.subprocess.EXIT_SECONDS", 0.1)
    async with asyncio.timeout(20):
        child = python(STUBBORN)
        (line,) = await child.receive()
        assert isinstance(line, bytes)
        grandchild = os.pidfd_open(int(line))
        await child.close()
        await _ended(grandchild)
    assert child.exit_code == -signal.SIGKILL


async def test_processes_that_a_child_leaves_in_its_group_are_killed() -> None:
    async with asyncio.timeout(20):
        child = python(LEAVES_A_CHILD)
        (line,) = await child.receive()
        assert isinstance(line, bytes)
        orphan = os.pidfd_open(int(line))
        assert not await child.receive()
        await child.close()
        await _ended(orphan)
    assert child.exit_code == 0


async def _ended(pidfd: int) -> None:
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(pidfd, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
