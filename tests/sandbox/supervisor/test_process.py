"""A command as a process: its output, its input, how it ends."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Literal

import pytest

from tests.harness.sandbox import SANDBOX
from tests.sandbox.commands import PYTHON, SECONDS, Output, run, start, workspace
from treadle.sandbox.backends.selection import Backend
from treadle.sandbox.policy import UNRESTRICTED, Confinement
from treadle.sandbox.process import Process

# A handler may interrupt a print, so these use write.
READ_KEY = """
import os, signal
signal.signal(signal.SIGINT, lambda *_: (os.write(1, b"interrupted\\n"), os._exit(3)))
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""
READ_SIZE = """
import os, signal
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"%d %d" % os.get_terminal_size()))
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


@pytest.fixture(params=["unrestricted", "confined"])
def confinement(request: pytest.FixtureRequest, ws: Path) -> Confinement:
    """Without a sandbox, and in the best one."""
    return UNRESTRICTED if request.param == "unrestricted" else workspace(ws)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
@pytest.mark.parametrize("size", [None, (24, 80)])
async def test_the_exit_code_is_the_commands_or_128_plus_the_signal(
    confinement: Confinement, script: str, code: int, size: tuple[int, int] | None
) -> None:
    process, _output = await start(["/bin/sh", "-c", script], confinement, size=size)
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == code
    assert process.exit_code == code


async def test_both_streams_are_separate(confinement: Confinement) -> None:
    done = await run(["/bin/sh", "-c", "echo out; echo err >&2"], confinement)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


async def test_environment_and_folder_are_the_given_ones(
    confinement: Confinement, ws: Path
) -> None:
    process, output = await start(
        ["/bin/sh", "-c", "echo $A $B; pwd"], confinement, cwd=ws, env={"A": "1", "B": "ü=ö"}
    )
    await process.wait()
    assert output.text == f"1 ü=ö\n{ws}\n"


async def test_a_variable_without_a_name_is_omitted(confinement: Confinement) -> None:
    process, output = await start(
        ["/bin/sh", "-c", "echo $A"], confinement, env={"": "x", "A": "1"}
    )
    assert (await process.wait(), output.text) == (0, "1\n")


async def test_without_input_a_command_reads_the_end_at_once(confinement: Confinement) -> None:
    assert (await run(["cat"], confinement)).exit_code == 0


async def test_input_is_written_as_fast_as_it_is_read(confinement: Confinement) -> None:
    process, output = await start(["cat"], confinement, has_stdin=True)
    data = os.urandom(3_000_000)
    async with asyncio.timeout(SECONDS):
        await process.write(data)
        process.close_stdin()
        assert await process.wait() == 0
    assert output.stdout == data


async def test_writing_to_a_command_that_has_ended_is_an_error(confinement: Confinement) -> None:
    process, _output = await start(["true"], confinement, has_stdin=True)
    await process.wait()
    with pytest.raises(BrokenPipeError):
        await process.write(b"x")


async def test_a_waiting_writer_fails_when_the_command_ends(confinement: Confinement) -> None:
    process, output = await start(["/bin/sh", "-c", "echo up; read x"], confinement, has_stdin=True)
    await output.until("up")
    async with asyncio.timeout(SECONDS):
        with pytest.raises(BrokenPipeError):
            await process.write(b"y\n" + bytes(10_000_000))
        await process.wait()


async def test_writing_to_a_command_without_input_is_refused(confinement: Confinement) -> None:
    process, _output = await start(["true"], confinement)
    with pytest.raises(OSError, match="no input"):
        await process.write(b"x")
    await process.wait()


async def test_a_hundred_megabytes_arrive_while_other_tasks_run(
    confinement: Confinement,
) -> None:
    size, seen, turns = 100_000_000, 0, 0

    def count(_stream: Literal["stdout", "stderr"], data: bytes) -> None:
        nonlocal seen
        seen += len(data)

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    process = await Process.start(
        SANDBOX,
        ["head", "-c", str(size), "/dev/zero"],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        confinement=confinement,
        on_output=count,
    )
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(tick())
        assert await process.wait() == 0
        ticking.cancel()
    assert seen == size
    assert turns > 100


async def test_a_paused_command_waits_for_its_reader(confinement: Confinement) -> None:
    script = "echo first; head -c 3000000 /dev/zero; echo last >&2"
    process, output = await start(["/bin/sh", "-c", script], confinement)
    await output.until("first")
    process.pause()
    await asyncio.sleep(0)
    held = len(output.stdout)
    assert held < 3_000_000
    process.resume()
    async with asyncio.timeout(SECONDS):
        await process.wait()
    assert (len(output.stdout), bytes(output.stderr)) == (3_000_006, b"last\n")


async def test_a_terminal_is_one_stream_with_a_size(confinement: Confinement) -> None:
    script = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size && echo err >&2 && : > /dev/tty"
    process, output = await start(["/bin/sh", "-c", script], confinement, size=(31, 97))
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 0
    assert (output.text, bytes(output.stderr)) == ("31 97\r\nerr\r\n", b"")


async def test_a_terminal_can_be_resized(confinement: Confinement) -> None:
    process, output = await start([*PYTHON, READ_SIZE], confinement, size=(24, 80))
    await output.until("ready")
    process.resize(50, 132)
    await output.until("132 50")
    process.kill()
    await process.wait()
    with pytest.raises(OSError, match="no terminal"):
        process.resize(1, 1)


async def test_ctrl_c_on_a_terminal_interrupts_the_command(confinement: Confinement) -> None:
    process, output = await start([*PYTHON, READ_KEY], confinement, size=(24, 80))
    await output.until("ready")
    await process.write(b"\x03")
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 3
    assert output.text.endswith("interrupted\r\n")


async def test_the_end_of_input_on_a_terminal_is_ctrl_d(confinement: Confinement) -> None:
    process, output = await start(["cat"], confinement, size=(24, 80))
    await process.write(b"line\n")
    await output.until("line\r\nline")
    process.close_stdin()
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 0


async def test_a_child_that_keeps_the_output_open_does_not_delay_the_end() -> None:
    process, output = await start(["/bin/sh", "-c", "sleep 1000 & echo done"], UNRESTRICTED)
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 0
    assert output.text == "done\n"
    process.kill()


async def test_fifty_commands_at_once_lose_no_byte(confinement: Confinement) -> None:
    async def one(number: int) -> str:
        script = f"for i in 1 2 3 4 5 6 7 8 9; do echo {number} $i; done"
        return (await run(["/bin/sh", "-c", script], confinement)).stdout

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(number)) for number in range(50)]
    expected = ["".join(f"{n} {i}\n" for i in range(1, 10)) for n in range(50)]
    assert [task.result() for task in running] == expected


async def test_a_missing_program_is_an_error_at_once() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        await run(["no-such-program"], UNRESTRICTED)


async def test_a_missing_folder_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await run(["true"], UNRESTRICTED, cwd=tmp_path / "nowhere")


async def test_a_file_that_is_not_executable_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    with pytest.raises(PermissionError, match="text"):
        await run([str(tmp_path / "text")], UNRESTRICTED)


async def test_terminals_work_under_every_backend(backend: Backend, ws: Path) -> None:
    process, output = await start([*PYTHON, READ_KEY], workspace(ws), size=(24, 80))
    await output.until("ready")
    await process.write(b"\x03")
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 3


async def test_output_is_delivered_as_it_arrives(confinement: Confinement) -> None:
    output = Output()
    process = await Process.start(
        SANDBOX,
        ["/bin/sh", "-c", "echo one; read x; echo two"],
        cwd="/",
        env={},
        confinement=confinement,
        on_output=output,
        has_stdin=True,
    )
    await output.until("one")
    assert output.text == "one\n"
    await process.write(b"\n")
    await process.wait()
    assert output.text == "one\ntwo\n"
