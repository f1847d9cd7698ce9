"""`skills/changed`, for clients of a server that has listed skills."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.threads import Client, staged
from treadle.protocol.base import JsonValue

CHANGED = "skills/changed"


def write(folder: Path, description: str = "Does it") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {folder.name}\ndescription: {description}\n---\n"
    (folder / "SKILL.md").write_text(text, "utf-8")


async def names(client: Client, cwd: Path) -> dict[str, JsonValue]:
    (entry,) = (await client.request("skills/list", {"cwds": [str(cwd)]}))["data"]
    return {skill["name"]: skill["description"] for skill in entry["skills"]}


async def until(client: Client, cwd: Path, expected: dict[str, JsonValue]) -> None:
    """List the skills after each notification, until the list is as wanted."""
    while True:
        await client.until(CHANGED)
        if await names(client, cwd) == expected:
            return


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            lambda root: write(root / "two"), {"one": "Does it", "two": "Does it"}, id="+"
        ),
        pytest.param(lambda root: write(root / "one", "Other"), {"one": "Other"}, id="="),
        pytest.param(lambda root: shutil.rmtree(root / "one"), {}, id="-"),
        pytest.param(shutil.rmtree, {}, id="all"),
    ],
)
async def test_clients_are_notified_when_skills_are_added_changed_and_removed(
    home: Path, change: Callable[[Path], object], expected: dict[str, JsonValue]
) -> None:
    root = home / "skills"
    write(root / "one")
    async with staged(home) as stage:
        client, other = await stage.client(), await stage.client()
        assert await names(client, stage.workspace) == {"one": "Does it"}
        change(root)
        await until(client, stage.workspace, expected)
        (notification, *_) = (await other.until(CHANGED))[-1:]

    assert (notification["method"], notification["params"]) == (CHANGED, {})


async def test_a_folder_that_is_created_later_and_filled_even_later_is_noticed(home: Path) -> None:
    async with staged(home) as stage:
        client = await stage.client()
        cwd = stage.workspace
        assert await names(client, cwd) == {}
        folder = cwd / ".agents" / "skills" / "late"
        folder.mkdir(parents=True)
        await client.until(CHANGED)
        write(folder)
        await until(client, cwd, {"late": "Does it"})
        write(folder, "Again")
        await until(client, cwd, {"late": "Again"})
