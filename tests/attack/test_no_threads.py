"""When the machine gives the server no more threads, requests fail; server and threads survive."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness.processes import spawn_server
from tests.harness.scripted import over, write_script
from tests.harness.threads import Refused, line_of
from treadle.sandbox.limits import read_limits
from treadle.store.index.writer import Change, IndexWriter
from treadle.store.journal import StorageFailed
from treadle.store.rollout import sync as syncing
from treadle.store.rollout.sync import FileSync


def refuse(_thread: threading.Thread) -> None:
    """Fail as a thread start does at the kernel's limit for the user."""
    raise RuntimeError("can't start new thread")


# The kernel does not apply the limit to root: there, test_ordinary_user.py runs this test.
if os.geteuid() != 0:

    async def test_a_server_without_threads_refuses_requests_and_recovers(
        home: Path,
    ) -> None:
        script = write_script(home.parent / "script.json", [[{"type": "says", "text": "ok"}]])
        server = spawn_server(home, TREADLE_SCRIPT=str(script))
        async with asyncio.timeout(40), over(server) as client:
            _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
            resource.prlimit(server.pid, resource.RLIMIT_NPROC, (1, hard))
            for method in ("thread/start", "thread/list", "thread/start"):
                with pytest.raises(Refused):
                    await client.request(method, {})
            resource.prlimit(server.pid, resource.RLIMIT_NPROC, (hard, hard))
            thread_id = await client.start()
            assert line_of((await client.run(thread_id))[-1]) == "turn/completed completed"
            listed = await client.request("thread/list", {})
            assert [thread["id"] for thread in listed["data"]] == [thread_id]


async def test_a_sync_that_gets_no_thread_fails_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, sync = threading.Event(), os.fdatasync

    def waits(descriptor: int) -> None:
        assert gate.wait(20)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", waits)
    path = tmp_path / "file"
    with path.open("w+b", 0) as file, ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(syncing, "_threads", lambda: pool)
        file.write(b"x")
        busy, other = FileSync(0), FileSync(0)
        first = busy.request(path, file.fileno(), 1)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            failed = other.request(path, file.fileno(), 1)
        gate.set()
        await first
        with pytest.raises(StorageFailed) as caught:
            await asyncio.wait_for(failed, 20)
        assert caught.value.code == "EAGAIN"
        await asyncio.wait_for(other.request(path, file.fileno(), 1), 20)


def test_the_index_is_written_when_threads_are_available_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def make_all(changes: list[Change]) -> None:
        made.append(len(changes))

    writer = IndexWriter(make_all, lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        writer.put("one", lambda: None)
        assert not writer.flush(20)
    writer.put("two", lambda: None)
    assert writer.flush(20)
    writer.close(20)
    assert made == [2]


def test_a_command_gets_at_most_half_of_the_processes_that_the_server_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (300, 300))
    assert read_limits({}).processes == 150
    assert read_limits({"processes": 4096}).processes == 4096
