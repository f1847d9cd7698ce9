"""A command can lock the files that it can open; the server never waits for such a lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.threads import Client, Stage
from treadle.protocol.base import JsonValue
from treadle.sandbox.opened_roots import FILE_NAME

# The mode by which the server recognizes its own placeholders.
PLACEHOLDER = 0o1555


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
