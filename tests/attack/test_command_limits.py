"""A command that exceeds a limit is killed with a message that names it; others keep running."""

from __future__ import annotations

import errno
import os
import resource
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.commands import commands, session_of
from tests.harness.model_server import calls
from tests.harness.sandbox import find_backend
from tests.harness.threads import Client, Stage, params_of, staged
from treadle.protocol.base import JsonValue

pytestmark = pytest.mark.timeout(60)

PYTHON = f"{sys.executable} -I -S -c"
KILLED = 137

# These stop by themselves too: without a limit they end and the test fails.
SPREADING_PROCESSES = (
    "bomb() { [ $1 -gt 0 ] && { bomb $(($1 - 1)) & bomb $(($1 - 1)) & }; sleep 30; }; bomb 8"
)
# Each child leaves its session and its parent, so neither a group nor a parent identifies it.
ESCAPING_PROCESSES = f"""{PYTHON} '
import os, time
for _ in range(400):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(30)
        os._exit(0)
time.sleep(30)'"""
MANY_THREADS = f"""{PYTHON} '
import threading, time
for _ in range(400):
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
time.sleep(30)'"""
ONE_LARGE_PROCESS = f"{PYTHON} 'import time; kept = bytearray(600 << 20); time.sleep(30)'"
LARGE_TOGETHER = f"""{PYTHON} '
import os, time
for _ in range(6):
    if os.fork() == 0:
        kept = bytearray(100 << 20)
        time.sleep(30)
time.sleep(30)'"""
MANY_FILES = f"""{PYTHON} '
import time
for number in range(64):
    open(str(number), "wb").write(bytes(1 << 20))
time.sleep(30)'"""
FILES_IN_SANDBOX_MEMORY = "head -c 400M /dev/zero > /dev/shm/large; sleep 30"
MANY_DESCRIPTORS = f"""{PYTHON} '
import os, time
for _ in range(40):
    if os.fork() == 0:
        kept = [os.dup(0) for _ in range(20)]
        time.sleep(30)
time.sleep(30)'"""
NAMELESS_FILES = f"""{PYTHON} '
import os, time
files = [os.memfd_create("hidden") for _ in range(8)]
for file in files:
    os.write(file, bytes(64 * 1024**2))
time.sleep(30)'"""
# Reads one page in each 2 MiB of 100 GiB: the zero page is shared, but each needs a page table.
PAGE_TABLES = f"""{PYTHON} '
import mmap, time
length, step = 100 * 1024**3, 2 * 1024**2
memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_NORESERVE, prot=mmap.PROT_READ)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for place in range(0, length, step):
    memory[place]
time.sleep(30)'"""
LARGE_SEGMENTS = f"""{PYTHON} '
import ctypes
get = ctypes.CDLL(None, use_errno=True).shmget
for size in (4096, 1024**2, 2**32 + 1):
    print(get(0, ctypes.c_size_t(size), 0o600) >= 0, ctypes.get_errno())
get = ctypes.CDLL(None, use_errno=True).semget
for size in (16, 32000):
    print(get(0, size, 0o600) >= 0, ctypes.get_errno())'"""
SPINNING = f"{PYTHON} 'while True: pass'"
SPINNING_TOGETHER = f"""{PYTHON} '
import os
for _ in range(2): os.fork()
while True: pass'"""
SANDBOXED, FREE = "workspace-write", "danger-full-access"


@dataclass
class Attacked:
    """A thread in which a command already runs, and methods to attack beside it."""

    stage: Stage
    client: Client
    thread_id: str
    other: int

    async def run(self, script: str) -> JsonValue:
        """Let the model run a command, use the server meanwhile, and return the command's item."""
        arguments = {"cmd": script, "login": False, "yield_time_ms": 30_000}
        self.stage.model.plays(calls("exec_command", arguments, "call-2"))
        turn_id = await self.client.start_turn(self.thread_id)
        await self.client.until("item/started", lambda params: params["item"]["id"] == "call-2")
        answer = await self.client.request("command/exec", {"command": ["echo", "answered"]})
        assert answer["stdout"] == "answered\n"
        return commands(await self.client.end_of(turn_id))[-1]

    @property
    def seen_by_model(self) -> str:
        """Return what the model read about the command."""
        text: str = self.stage.model.requests[-1].outputs()["call-2"]
        return text


@asynccontextmanager
async def attacked(home: Path, limit: str, sandbox: str) -> AsyncIterator[Attacked]:
    """Run a command beside one that exceeds a limit; both must end as expected."""
    async with staged(home) as stage:
        stage.configure(f"[sandbox.limits]\n{limit}\n")
        client = await stage.client()
        thread_id = await client.start(
            cwd=str(stage.workspace), approvalPolicy="never", sandbox=sandbox
        )
        script = "echo ready; read line; echo goes on"
        arguments = {"cmd": script, "tty": True, "login": False, "yield_time_ms": 250}
        stage.model.plays(calls("exec_command", arguments, "call-1"))
        await client.run(thread_id)
        other = session_of(stage.model.requests[-1].outputs()["call-1"])
        yield Attacked(stage, client, thread_id, other)
        arguments = {"session_id": other, "chars": "now\n", "yield_time_ms": 5_000}
        stage.model.plays(calls("write_stdin", arguments, "call-3"))
        await client.run(thread_id)
        assert "goes on" in stage.model.requests[-1].outputs()["call-3"]


@pytest.mark.parametrize(
    ("sandbox", "limit", "script", "reason"),
    [
        (SANDBOXED, "processes = 64", SPREADING_PROCESSES, "more than 64 processes"),
        (FREE, "processes = 64", SPREADING_PROCESSES, "more than 64 processes"),
        (FREE, "processes = 64", ESCAPING_PROCESSES, "more than 64 processes"),
        (SANDBOXED, "processes = 64", MANY_THREADS, "more than 64 processes"),
        (FREE, 'memory = "256MiB"', ONE_LARGE_PROCESS, "more than 256 MiB of memory"),
        (SANDBOXED, 'memory = "256MiB"', LARGE_TOGETHER, "more than 256 MiB of memory"),
        (SANDBOXED, 'memory = "256MiB"', FILES_IN_SANDBOX_MEMORY, "more than 256 MiB of memory"),
        (SANDBOXED, 'memory = "256MiB"', NAMELESS_FILES, "more than 256 MiB of memory"),
        (SANDBOXED, 'memory = "96MiB"', PAGE_TABLES, "more than 96 MiB of memory"),
        (SANDBOXED, "cpu_seconds = 1", SPINNING, "more than 1 seconds of CPU time"),
        (FREE, "cpu_seconds = 1", SPINNING_TOGETHER, "more than 1 seconds of CPU time"),
        (SANDBOXED, 'disk_reserve = "100%"', MANY_FILES, "too little space left on the file sys"),
        (FREE, 'file_size = "1MiB"', "head -c 2M /dev/zero > big", "a file larger than 1 MiB"),
    ],
    ids=[
        *("fork bomb", "fork bomb outside", "fork bomb of daemons", "threads", "memory of one"),
        *("memory of many", "memory of files", "memory of files without a name", "page tables"),
        *("CPU of one", "CPU of many", "disk", "file"),
    ],
)
async def test_greedy_command_alone_is_killed_and_reports_the_limit(
    home: Path, sandbox: str, limit: str, script: str, reason: str
) -> None:
    async with attacked(home, limit, sandbox) as scene:
        item = await scene.run(script)

        assert item["status"] == "failed"
        assert item["exitCode"] >= 128
        key = limit.split(" ", maxsplit=1)[0]
        note = item["aggregatedOutput"].splitlines()[-1]
        assert note.startswith(f"killed: {reason}")
        assert note.endswith(f"(sandbox.limits.{key})")
        assert note in scene.seen_by_model


async def test_process_that_opens_too_many_files_gets_an_error(home: Path) -> None:
    script = f"{PYTHON} 'import os\nwhile True: os.dup(0)'"
    async with attacked(home, "open_files = 100", SANDBOXED) as scene:
        item = await scene.run(script)

        assert item["exitCode"] == 1
        assert "Too many open files" in item["aggregatedOutput"]


@pytest.mark.skipif(Path("/proc/self/fd").stat().st_size == 0, reason="needs Linux 6.2")
async def test_command_whose_processes_open_too_many_files_together_is_killed(home: Path) -> None:
    async with attacked(home, "open_files = 32", FREE) as scene:
        item = await scene.run(MANY_DESCRIPTORS)

        assert "(sandbox.limits.open_files)" in item["aggregatedOutput"]


@pytest.mark.parametrize("is_streaming", [False, True])
async def test_client_of_command_exec_reads_on_stderr_which_limit_was_hit(
    home: Path, is_streaming: bool
) -> None:
    async with staged(home) as stage:
        stage.configure("[sandbox.limits]\nprocesses = 64\n")
        client = await stage.client()
        answer = await client.request(
            "command/exec",
            {
                "command": ["bash", "-c", SPREADING_PROCESSES],
                "cwd": str(stage.workspace),
                "timeoutMs": 30_000,
                "processId": "bomb",
                "streamStdoutStderr": is_streaming,
            },
        )
        deltas = params_of(await client.settled(), "command/exec/outputDelta")

    assert answer["exitCode"] == KILLED
    streamed = b"".join(b64decode(delta["deltaBase64"]) for delta in deltas).decode()
    note = "killed: more than 64 processes and threads (sandbox.limits.processes)\n"
    assert (streamed if is_streaming else answer["stderr"]).endswith(note)


async def test_client_is_not_asked_to_run_a_killed_command_outside_the_sandbox(home: Path) -> None:
    """The message names `sandbox.limits`; it must not be taken for a denial by the sandbox."""
    async with staged(home) as stage:
        stage.configure("[sandbox.limits]\nprocesses = 64\n")
        client = await stage.client()
        thread_id = await client.start(
            cwd=str(stage.workspace), approvalPolicy="on-request", sandbox=SANDBOXED
        )
        stage.model.plays(calls("exec_command", {"cmd": SPREADING_PROCESSES, "login": False}))
        messages = await client.run(thread_id)

    assert "item/commandExecution/requestApproval" not in [each.get("method") for each in messages]
    assert commands(messages)[-1]["exitCode"] == KILLED


async def test_a_crashing_command_starts_no_handler_of_core_dumps(home: Path) -> None:
    """Linux runs the program of core_pattern outside the sandbox, unless the limit is exactly 1."""
    limit = min(1, resource.getrlimit(resource.RLIMIT_CORE)[1] % 2**64)
    async with attacked(home, "", SANDBOXED) as scene:
        item = await scene.run(
            f"{PYTHON} 'import resource as r; print(r.getrlimit(r.RLIMIT_CORE))'"
        )
    assert item["aggregatedOutput"] == f"({limit}, {limit})\n"


async def test_commands_are_the_first_that_the_kernel_kills_when_memory_runs_out(
    home: Path,
) -> None:
    async with attacked(home, "", SANDBOXED) as scene:
        lower = "{ echo 0 > /proc/self/oom_score_adj; } 2>/dev/null"
        item = await scene.run(f"{lower}; cat /proc/self/oom_score_adj; ulimit -c; ulimit -n; nice")

        score, core, files, nice = map(int, item["aggregatedOutput"].split())
        # The tests themselves may run with a lower priority.
        assert (score, core, nice) == (500, 0, min(19, os.nice(0) + 5))
        assert files <= 32_768


async def test_shared_memory_and_semaphores_that_no_process_holds_are_small(home: Path) -> None:
    async with attacked(home, "", SANDBOXED) as scene:
        if (await find_backend()).name == "landlock":
            pytest.skip("Landlock refuses segments of any size")
        item = await scene.run(LARGE_SEGMENTS)

        lines = item["aggregatedOutput"].splitlines()
        refused = f"False {errno.EINVAL}"
        assert lines == ["True 0", refused, refused, f"True {errno.EINVAL}", refused]
