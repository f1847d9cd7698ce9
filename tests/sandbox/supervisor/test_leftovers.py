"""Nothing remains of a command after its end, however it tries to survive."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.sandbox import using
from tests.sandbox.commands import (
    PYTHON,
    SECONDS,
    names,
    new_token,
    processes_with,
    run,
    start,
    wait_until_gone,
    workspace,
)
from treadle.sandbox.backends.selection import Backend
from treadle.sandbox.policy import UNRESTRICTED, Confinement

# Each leaves a process that sleeps with TOKEN among its arguments, and prints a word.
SLEEP = "exec -a TOKEN sleep 1000"
WAYS = {
    "in the foreground": f"echo up; {SLEEP}",
    "in the background": f"({SLEEP}) & echo up; wait",
    "in its own session": f"setsid bash -c '{SLEEP}' & echo up; wait",
    "as a daemon": f"(setsid bash -c '{SLEEP}' </dev/null >/dev/null 2>&1 &) ; echo up; sleep 1000",
    "as a daemon without environment": (
        f"(env -i setsid bash -c '({SLEEP}) &' </dev/null >/dev/null 2>&1 &) ; echo up; sleep 1000"
    ),
    "ignoring signals": f"trap '' TERM HUP INT; ({SLEEP}) & echo up; wait",
}


@pytest.fixture(params=["unrestricted", "bubblewrap", "landlock"])
def confinement(
    request: pytest.FixtureRequest, ws: Path, working: dict[str, Backend]
) -> Iterator[Confinement]:
    """Without a sandbox, and in each of them."""
    if request.param == "unrestricted":
        yield UNRESTRICTED
        return
    if request.param not in working:
        pytest.skip(f"{request.param} does not work here")
    with using(working[request.param]):
        yield workspace(ws)


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the program, or skip the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    program = tmp_path_factory.mktemp("chains") / "chains"
    source = Path(__file__).with_name("chains.c")
    subprocess.run([compiler, "-o", str(program), str(source)], check=True)
    return program


@pytest.fixture
def token() -> str:
    return new_token()


async def until_there(token: str) -> None:
    """Wait for processes that are not our children: there is no event for their start."""
    async with asyncio.timeout(SECONDS):
        while not processes_with(token):  # noqa: ASYNC110 - other processes, no event of ours
            await asyncio.sleep(0.01)


async def until_empty(folder: Path) -> None:
    """Wait until another process has removed the content."""
    async with asyncio.timeout(SECONDS):
        while names(folder):  # noqa: ASYNC110 - another process, no event of ours
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_kill_leaves_nothing(confinement: Confinement, token: str, way: str) -> None:
    process, output = await start(["bash", "-c", way.replace("TOKEN", token)], confinement)
    await output.until("up")
    await until_there(token)
    process.kill()
    process.kill()
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 137
    wait_until_gone(token)


async def test_chains_of_processes_do_not_outrun_the_kill(
    confinement: Confinement, chains: Path, ws: Path
) -> None:
    process, output = await start([str(chains)], confinement, cwd=ws)
    await output.until("up")
    process.kill()
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 137
    with (ws / "held").open() as held:
        # Until the last process has ended.
        await asyncio.to_thread(fcntl.flock, held, fcntl.LOCK_EX)
    assert names(ws) == ["held"]


async def test_kill_at_any_moment_leaves_nothing(confinement: Confinement, token: str) -> None:
    """A sandbox that is being set up, partly in its own session, is killed as well."""

    async def one(delay: float) -> int:
        script = WAYS["as a daemon"].replace("TOKEN", token)
        process, _output = await start(["bash", "-c", script], confinement)
        # There are no events for the moments that are tried here.
        await asyncio.sleep(delay)
        process.kill()
        return await process.wait()

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        codes = [tasks.create_task(one(number * 0.0004)) for number in range(60)]
    assert {code.result() for code in codes} == {137}
    wait_until_gone(token)


async def test_a_sandbox_ends_with_its_command(backend: Backend, ws: Path, token: str) -> None:
    script = WAYS["as a daemon"].replace("TOKEN", token).rsplit(";", 1)[0]
    done = await run(["bash", "-c", script], workspace(ws))
    assert (done.exit_code, done.stdout) == (0, "up\n")
    wait_until_gone(token)


async def test_without_a_sandbox_a_daemon_survives_until_it_is_killed(token: str) -> None:
    script = WAYS["as a daemon"].replace("TOKEN", token).rsplit(";", 1)[0]
    process, output = await start(["bash", "-c", script], UNRESTRICTED)
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 0
    await until_there(token)
    assert output.text == "up\n"
    process.kill()
    wait_until_gone(token)


async def test_a_start_that_is_cancelled_leaves_nothing(token: str) -> None:
    argv = ["bash", "-c", SLEEP.replace("TOKEN", token)]
    starting = asyncio.get_running_loop().create_task(start(argv, UNRESTRICTED))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    # The next command follows it in the supervisor's queue.
    await run(["true"], UNRESTRICTED)
    wait_until_gone(token)


def spawn(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdout=subprocess.PIPE)


@asynccontextmanager
async def owned(backend: str, ws: Path, script: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Yield a process that has started a command."""
    program = str(Path(__file__).parents[1] / "owner.py")
    owner = spawn([sys.executable, program, backend, str(ws), script])
    try:
        assert owner.stdout is not None
        with owner.stdout as stdout:
            assert await asyncio.to_thread(stdout.readline) == b"up\n"
            yield owner
    finally:
        owner.kill()
        owner.wait()


@pytest.mark.parametrize("name", ["unrestricted", "bubblewrap", "landlock"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_kill_9_of_the_owner_leaves_nothing(
    working: dict[str, Backend], ws: Path, token: str, name: str, way: str
) -> None:
    if name not in working and name != "unrestricted":
        pytest.skip(f"{name} does not work here")
    script = f"exec bash -c \"$(cat <<'END'\n{way.replace('TOKEN', token)}\nEND\n)\""
    async with owned(name, ws, script) as owner:
        await until_there(token)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        wait_until_gone(token)


async def test_processes_outside_get_no_signal(backend: Backend, ws: Path) -> None:
    with spawn(["sleep", "1000"]) as other:
        try:
            script = f"import os, signal; os.kill({other.pid}, signal.SIGKILL)"
            done = await run([*PYTHON, script], workspace(ws))
            assert done.exit_code == 1
            assert other.poll() is None
        finally:
            other.kill()


async def test_a_signal_to_all_processes_stays_inside(backend: Backend, ws: Path) -> None:
    with spawn(["sleep", "1000"]) as other:
        try:
            await run(["/bin/sh", "-c", "kill -KILL -1"], workspace(ws))
            assert other.poll() is None
        finally:
            other.kill()


async def test_processes_outside_get_no_limit(backend: Backend, ws: Path) -> None:
    with spawn(["sleep", "1000"]) as other:
        try:
            script = f"import resource as r; r.prlimit({other.pid}, r.RLIMIT_CORE, (0, 0))"
            before = resource.prlimit(other.pid, resource.RLIMIT_CORE)
            assert (await run([*PYTHON, script], workspace(ws))).exit_code == 1
            assert resource.prlimit(other.pid, resource.RLIMIT_CORE) == before
        finally:
            other.kill()


async def test_processes_outside_cannot_be_inspected(backend: Backend, ws: Path) -> None:
    script = f"open('/proc/{os.getpid()}/environ', 'rb').read()"
    done = await run([*PYTHON, script], workspace(ws))
    assert done.exit_code == 1


async def test_a_killed_supervisor_is_replaced(token: str) -> None:
    argv = ["bash", "-c", f"echo up; {SLEEP.replace('TOKEN', token)}"]
    process, output = await start(argv, UNRESTRICTED)
    await output.until("up")
    guard = parent_of(process.pid)
    os.kill(parent_of(guard), signal.SIGKILL)
    os.kill(guard, signal.SIGKILL)
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 137
    wait_until_gone(token)
    assert (await run(["echo", "again"], UNRESTRICTED)).stdout == "again\n"


async def test_placeholders_of_a_killed_owner_are_removed(
    bubblewrap: Backend, ws: Path, token: str
) -> None:
    script = f"echo up; exec bash -c '{SLEEP.replace('TOKEN', token)}'"
    async with owned("bubblewrap", ws, script) as owner:
        await until_there(token)
        assert names(ws) == [".agents", ".codex", ".git"]
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        await until_empty(ws)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
