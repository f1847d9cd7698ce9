"""A command can lock the files that it can open; the server never waits for such a lock."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.threads import Client, Stage
from treadle.protocol.base import JsonValue
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.opened_roots import FILE_NAME, OpenedRoots
from treadle.sandbox.protection import Protection
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
