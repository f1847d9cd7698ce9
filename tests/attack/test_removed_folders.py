"""A folder that a command removes is missing for those that name it, and for no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.processes import TREADLE
from tests.harness.threads import Client, Refused, spawned
from treadle.protocol.base import JsonValue


async def answers(client: Client, folder: str) -> list[JsonValue]:
    """Use a folder in every kind of request that resolves one."""
    requests: list[tuple[str, JsonValue]] = [
        ("config/read", {"cwd": folder, "includeLayers": True}),
        ("skills/list", {"cwds": [folder]}),
        ("hooks/list", {"cwds": [folder]}),
        ("command/exec", {"command": ["true"], "cwd": folder}),
        ("process/spawn", {"command": ["true"], "cwd": folder, "processHandle": "a"}),
        ("fs/watch", {"path": folder, "watchId": "a"}),
        ("fuzzyFileSearch", {"query": "a", "roots": [folder]}),
        ("thread/start", {"cwd": folder}),
        # The folder of the server is not there, but it still has a name.
        ("environment/info", {"environmentId": "local"}),
    ]
    return [await client.request(method, params) for method, params in requests]


async def test_server_works_without_the_folder_that_it_was_started_in(
    home: Path, workspace: Path
) -> None:
    """A command can remove it if it lies in its workspace; the system then has no name for it."""
    started = workspace / "started"
    started.mkdir()
    async with spawned([TREADLE, "app-server"], home, cwd=started) as client:
        removal = {"command": ["rmdir", "started"], "cwd": str(workspace)}
        policy = {"type": "workspaceWrite", "excludeSlashTmp": True}
        await client.request("command/exec", {**removal, "sandboxPolicy": policy})
        assert not started.exists()
        other = home.parent / "other"
        other.mkdir()
        *_, about = await answers(client, str(other))
        assert about["cwd"] == started.as_uri()
        with pytest.raises(Refused, match="No such file or directory"):
            await client.request("command/exec", {"command": ["true"]})
