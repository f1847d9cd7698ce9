"""A command that hides its resource usage is held to its limits all the same."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from tests.harness.threads import staged
from treadle.protocol.base import JsonValue

pytestmark = pytest.mark.timeout(60)

SANDBOXED: JsonValue = {"type": "workspaceWrite"}
FREE: JsonValue = {"type": "dangerFullAccess"}
KILLED = 137
COUNTS_FILES = Path("/proc/self/fd").stat().st_size > 0

# /proc shows no usage of a process whose main thread has exited (60 and 93 are `exit`).
FIRST_THREAD_ENDS = """
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
def leave(work):
    def run():
        work()
        time.sleep(30)
        os._exit(0)
    threading.Thread(target=run).start()
    libc.syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""
# An ordinary user cannot inspect such a process.
NOT_DUMPABLE = """
import ctypes, mmap, os, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
def leave(work):
    work()
    time.sleep(30)
"""
# Only one thread has these files open; 0x400 is CLONE_FILES.
OWN_FILES = """
import ctypes, os, threading, time
def leave(work):
    def run():
        assert ctypes.CDLL(None).unshare(0x400) == 0
        work()
        time.sleep(30)
    threading.Thread(target=run).start()
"""
MEMORY = """
kept = []
leave(lambda: kept.append(bytearray(600 << 20)))
"""
NAMELESS = """
def work():
    file = os.memfd_create("hidden")
    for _ in range(8):
        os.write(file, bytes(64 << 20))
leave(work)
"""
SHARED = """
kept = []
def work():
    kept.append(mmap.mmap(-1, 600 << 20))
    for place in range(0, 600 << 20, 4096):
        kept[0][place] = 1
leave(work)
"""
SPINNING = """
def work():
    while True: pass
for _ in range(5):
    if os.fork() == 0:
        leave(work)
leave(work)
"""
FILES = """
for _ in range(40):
    if os.fork() == 0:
        leave(lambda: [os.dup(0) for _ in range(50)] and time.sleep(30))
time.sleep(30)
"""
DISK = """
def work():
    for number in range(64):
        with open(str(number), "wb") as file:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
leave(work)
"""
# The sandbox opens up to 50 files itself, if the program is in a folder that commands may write.
MEMORY_LIMIT, CPU_LIMIT, FILES_LIMIT = 'memory = "256MiB"', "cpu_seconds = 2", "open_files = 64"
DISK_LIMIT = 'disk_reserve = "100%"'
VMSPLICE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.vmsplice(1, None, 0, 0), ctypes.get_errno())
"""


async def run(home: Path, limit: str, script: str, policy: JsonValue) -> JsonValue:
    """Run a program under a limit."""
    async with staged(home) as stage:
        stage.configure(f"[sandbox.limits]\n{limit}\n")
        client = await stage.client()
        command: JsonValue = [sys.executable, "-I", "-S", "-W", "ignore", "-c", script]
        params: JsonValue = {"command": command, "cwd": str(stage.workspace)}
        return await client.request(
            "command/exec", {**params, "timeoutMs": 25_000, "sandboxPolicy": policy}
        )


@pytest.mark.parametrize("policy", [SANDBOXED, FREE], ids=["sandboxed", "free"])
@pytest.mark.parametrize(
    ("limit", "hides", "uses"),
    [
        (MEMORY_LIMIT, FIRST_THREAD_ENDS, MEMORY),
        (CPU_LIMIT, FIRST_THREAD_ENDS, SPINNING),
        (FILES_LIMIT, FIRST_THREAD_ENDS, FILES),
        (DISK_LIMIT, FIRST_THREAD_ENDS, DISK),
        (MEMORY_LIMIT, OWN_FILES, NAMELESS),
        (MEMORY_LIMIT, NOT_DUMPABLE, NAMELESS),
        (MEMORY_LIMIT, NOT_DUMPABLE, SHARED),
        (CPU_LIMIT, NOT_DUMPABLE, SPINNING),
        (DISK_LIMIT, NOT_DUMPABLE, DISK),
    ],
    ids=[
        *("memory without a first thread", "CPU without a first thread"),
        *("files without a first thread", "disk without a first thread"),
        *("nameless files of one thread", "hidden nameless files", "hidden shared memory"),
        *("hidden CPU time", "hidden writes"),
    ],
)
async def test_a_command_that_hides_what_it_uses_is_killed(
    home: Path, limit: str, hides: str, uses: str, policy: JsonValue
) -> None:
    if limit == FILES_LIMIT and not COUNTS_FILES:
        pytest.skip("needs Linux 6.2")
    answer = await run(home, limit, hides + uses, policy)
    key = limit.split(" ", maxsplit=1)[0]
    assert answer["stderr"].endswith(f"(sandbox.limits.{key})\n"), answer
    assert answer["exitCode"] == KILLED


async def test_a_command_that_hides_and_uses_little_is_not_killed(home: Path) -> None:
    # Not with DISK_LIMIT: disk space that other tests use meanwhile would count.
    limits = f"{MEMORY_LIMIT}\n{CPU_LIMIT}"
    script = NOT_DUMPABLE.replace("30", "2") + "leave(lambda: None)\nprint('done')"
    assert (await run(home, limits, script, SANDBOXED))["stdout"] == "done\n"


async def test_no_memory_can_be_hidden_in_the_pages_of_a_pipe(home: Path) -> None:
    answer = await run(home, "", VMSPLICE, SANDBOXED)
    assert answer["stdout"] == f"-1 {errno.ENOSYS}\n"
