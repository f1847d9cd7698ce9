"""A command can lock the files that it can open; the server never waits for such a lock."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import stalls
from tests.harness.stalls import stalled
from tests.harness.threads import Client, Stage
from treadle.protocol.base import JsonValue
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.opened_roots import FILE_NAME, OpenedRoots
from treadle.sandbox.protection import Protection
from treadle.store.organization import attachments, database
from treadle.support.files import folder_lock

# How long the kernel makes an open wait for a lease.
LEASE_SECONDS = int(Path("/proc/sys/fs/lease-break-time").read_text())
# The mode by which the server recognizes its own placeholders.
PLACEHOLDER = 0o1555


@contextmanager
def lease(path: Path, kind: int) -> Iterator[None]:
    """Hold a lease: opening the file then waits, or fails if it must not wait."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, kind)
        # By default the kernel kills the holder when someone opens the file.
        with blocked_signal():
            yield
    finally:
        os.close(descriptor)


@contextmanager
def blocked_signal() -> Iterator[None]:
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGIO, before)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold a lock as a background command could."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


async def plant(client: Client, folder: Path) -> JsonValue:
    """Run a command that writes a file, and then settings."""
    return await client.request(
        "command/exec",
        {
            "command": ["sh", "-c", "echo x > file; echo x > .codex/config.toml"],
            "cwd": str(folder),
            "sandboxPolicy": {"type": "workspaceWrite", "networkAccess": False},
        },
    )


async def test_a_locked_placeholder_delays_no_command_and_stays_protected(stage: Stage) -> None:
    client = await stage.client()
    settings = stage.workspace / ".codex"
    settings.mkdir()
    settings.chmod(PLACEHOLDER)

    with exclusive_lock(settings):
        done = await plant(client, stage.workspace)

    assert stage.workspace.joinpath("file").exists()
    assert done["exitCode"] != 0
    assert not settings.joinpath("config.toml").exists()


async def test_a_locked_record_of_writable_folders_delays_no_command(stage: Stage) -> None:
    client = await stage.client()
    record = stage.home / FILE_NAME
    record.touch(0o600)

    with exclusive_lock(record):
        await plant(client, stage.workspace)

    assert stage.workspace.joinpath("file").exists()
    assert str(stage.workspace) in record.read_text("utf-8")


async def test_a_lease_on_the_record_of_writable_folders_delays_no_command(stage: Stage) -> None:
    """The sandbox refuses leases; a program outside it can still take one."""
    client = await stage.client()
    record = stage.home / FILE_NAME
    record.touch(0o600)

    async with asyncio.timeout(LEASE_SECONDS / 2):
        with lease(record, fcntl.F_RDLCK):
            await plant(client, stage.workspace)
    assert stage.workspace.joinpath("file").exists()

    other = stage.home.parent / "other"
    other.mkdir()
    await plant(client, other)
    recorded = record.read_text("utf-8")
    assert str(stage.workspace) in recorded
    assert str(other) in recorded


async def test_a_thread_whose_lock_a_command_waits_for_can_be_resumed(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id)
    folder = stage.home / "thread-writer-locks"
    (folder / ".coordination.lock").touch(0o600)
    lock = os.open(folder / f"{thread_id}.lock", os.O_RDONLY)

    with exclusive_lock(folder / ".coordination.lock"):
        await client.request("thread/unsubscribe", {"threadId": thread_id})
        await client.until("thread/closed", lambda params: params["threadId"] == thread_id)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in folder.iterdir():
            assert path.name == ".coordination.lock"
        await client.request("thread/resume", {"threadId": thread_id})
        await client.run(thread_id)
    os.close(lock)


async def test_settings_are_written_while_a_command_holds_the_home(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "LOCK_SECONDS", 0.0)
    client = await stage.client()
    value = {"keyPath": "model", "value": "other", "mergeStrategy": "replace"}
    with exclusive_lock(stage.home):
        await client.request("config/value/write", value)
    assert 'model = "other"' in (stage.home / "config.toml").read_text("utf-8")


def test_a_record_that_cannot_be_read_may_contain_any_folder(home: Path) -> None:
    record = OpenedRoots(home)
    record.add([str(home.parent / "first")])
    place = home.parent / "elsewhere" / "file"
    place.parent.mkdir()
    place.touch()
    known = OpenedRoots(home)
    with lease(home / FILE_NAME, fcntl.F_WRLCK):
        assert known.may_have_made(str(place))
    assert not known.may_have_made(str(place))


def test_a_folder_whose_repository_is_unknown_stays_read_only(home: Path) -> None:
    root = home.parent / "worktree"
    root.mkdir()
    pointer = root / ".git"
    pointer.write_text(f"gitdir: {home.parent}/main/.git/worktrees/worktree")
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    boundary = Boundary(Protection())
    with lease(pointer, fcntl.F_WRLCK):
        assert not boundary.confine(policy, str(root)).may_write(str(root / "file"))
    assert boundary.confine(policy, str(root)).may_write(str(root / "file"))


@contextmanager
def shared_lock(path: Path) -> Iterator[None]:
    """Hold a lock on the bytes by which SQLite locks, in another process, as a command could."""
    program = (
        "import fcntl, sys; file = open(sys.argv[1]); fcntl.lockf(file, fcntl.LOCK_SH); "
        "print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.stdin.close()


async def test_a_locked_database_of_sections_is_waited_for_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wait for each change would delay those who only read by all of them."""
    client = await stage.client()
    await client.request("threadSection/create", {"name": "first"})
    connect, waits = sqlite3.connect, []

    def spy(path: Path, *, timeout: float, isolation_level: None) -> sqlite3.Connection:
        waits.append(timeout)
        return connect(path, timeout=timeout, isolation_level=isolation_level)

    monkeypatch.setattr(database, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(sqlite3, "connect", spy)
    with shared_lock(stage.home / "organization.sqlite"):
        for name in ("second", "third"):
            refused = await client.refusal("threadSection/create", {"name": name})
            assert refused.data["errno"] == "EBUSY"
        sections = (await client.request("threadSection/list", {}))["data"]

    assert [section["name"] for section in sections] == ["Pinned", "first"]
    assert waits == [0.01, 0.0, 0.0]


async def test_changes_of_attachments_that_wait_hold_up_no_list_of_threads(stage: Stage) -> None:
    """A client adds attachments to many threads, and a command locks their database."""
    client, other = await stage.client(), await stage.client()
    threads = [await client.start() for _ in range(10)]
    with stalled(attachments, "attach") as stall:
        for number, thread_id in enumerate(threads):
            about = {"attachmentType": "pr", "identityKey": "1", "payload": None}
            params = {"threadId": thread_id, **about}
            request = {"id": f"a{number}", "method": "thread/attachment/add", "params": params}
            await client.peer.send(request)
        await stall.reached()
        await client.request("thread/loaded/list", {})
        async with asyncio.timeout(stalls.SECONDS / 2):
            listed = await other.request("thread/search", {"searchTerm": "x"})
        stall.release()

    assert listed["data"] == []
