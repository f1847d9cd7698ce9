"""What the user may not examine in a workspace is missing, and no request or turn fails for it.

A link of a repository can lead into a folder that the user may not enter, such as the one of
another user, and a command can take away the permissions of folders that it created.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.model_server import says
from tests.harness.threads import EPILOGUE, Stage, outline

PLACES = [
    "AGENTS.md",
    ".git",
    ".git/HEAD",
    ".gitignore",
    ".codex",
    ".codex/skills",
    ".codex/hooks.json",
    ".agents",
    ".agents/skills",
    ".agents/skills/one",
    ".agents/skills/one/SKILL.md",
]


@pytest.fixture
def closed(outside: Path) -> Iterator[Path]:
    """Provide a folder that an ordinary user may not enter."""
    outside.chmod(0)
    yield outside
    outside.chmod(0o700)


async def use(stage: Stage) -> None:
    """Make the requests and the turn that examine a workspace."""
    client, folder = await stage.client(), str(stage.workspace)
    await client.request("skills/list", {"cwds": [folder]})
    await client.request("hooks/list", {"cwds": [folder]})
    await client.request("config/read", {"cwd": folder, "includeLayers": True})
    thread_id = await client.start(cwd=folder)
    stage.model.plays(says("ok"))
    assert outline(await client.run(thread_id))[-2:] == EPILOGUE


async def search(stage: Stage) -> None:
    """Search the workspace for files."""
    client = await stage.client()
    await client.request("fuzzyFileSearch", {"query": "a", "roots": [str(stage.workspace)]})


@pytest.mark.parametrize("place", PLACES)
async def test_a_link_into_a_closed_folder_leads_to_nothing(
    stage: Stage, closed: Path, place: str
) -> None:
    link = stage.workspace / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(closed / "x")
    await use(stage)
    await search(stage)


@pytest.mark.parametrize("place", PLACES)
async def test_a_folder_without_permissions_contains_nothing(stage: Stage, place: str) -> None:
    folder = stage.workspace / place
    folder.mkdir(parents=True)
    folder.chmod(0)
    try:
        await use(stage)
        await search(stage)
    finally:
        folder.chmod(0o700)


async def test_a_link_into_the_kernels_files_contains_no_skill(stage: Stage) -> None:
    """Some of their folders refuse to be examined by any user."""
    skills = stage.workspace / ".agents" / "skills"
    skills.mkdir(parents=True)
    (skills / "one").symlink_to("/proc/self")
    await use(stage)
