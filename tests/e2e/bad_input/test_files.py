"""The server never blocks on what it finds in place of a file.

A command can create a pipe in its workspace. Opening one waits for its other end.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.harness.commands import commands
from tests.harness.model_server import calls, model_server
from tests.harness.processes import TREADLE
from tests.harness.threads import EPILOGUE, Client, configure, outline, spawned, text_input

PLACES = """
    .git .git/HEAD .git/config .git/commondir AGENTS.md .codex/rules/a.rules
    .codex/skills/x/SKILL.md .agents/skills/x/SKILL.md
""".split()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def put_pipe(work: Path, place: str) -> Path:
    path = work / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if place.startswith(".git/") and place != ".git/HEAD":
        (work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    os.mkfifo(path)
    return path


async def is_alive(client: Client) -> bool:
    async with asyncio.timeout(10):
        return (await client.request("thread/loaded/list", {}))["nextCursor"] is None


@pytest.mark.parametrize("place", PLACES)
async def test_a_pipe_in_the_workspace_blocks_nothing(home: Path, work: Path, place: str) -> None:
    put_pipe(work, place)
    async with model_server() as model:
        configure(home, model, f'projects."{work}".trust_level = "trusted"')
        async with spawned([TREADLE, "app-server"], home) as client:
            await is_alive(client)
            thread_id = await client.start(
                cwd=str(work), sandbox="workspace-write", approvalPolicy="never"
            )
            model.plays(calls("exec_command", {"cmd": "echo done"}))
            messages = await client.run(thread_id)
            await client.request("skills/list", {"cwds": [str(work)]})

    assert outline(messages)[-2:] == EPILOGUE
    # Rules that cannot be read may forbid the command, and `never` cannot ask for approval.
    expected = None if place.endswith(".rules") else "done\n"
    assert [item["aggregatedOutput"] for item in commands(messages)] == [expected]


async def test_a_pipe_in_place_of_the_configuration_is_rejected_by_name(
    home: Path, work: Path
) -> None:
    path = put_pipe(work, ".codex/config.toml")
    async with model_server() as model:
        configure(home, model, f'projects."{work}".trust_level = "trusted"')
        async with spawned([TREADLE, "app-server"], home) as client:
            refused = await client.refusal("thread/start", {"cwd": str(work)})
            assert await is_alive(client)

    assert refused.kind == "invalidConfig"
    assert refused.message == f"failed to load {path}: [Errno 22] not a file: '{path}'"


async def test_a_pipe_in_place_of_an_image_is_rejected_by_name(home: Path, work: Path) -> None:
    path = put_pipe(work, "picture.png")
    async with model_server() as model:
        configure(home, model)
        async with spawned([TREADLE, "app-server"], home) as client:
            thread_id = await client.start(cwd=str(work))
            picture = {"type": "localImage", "path": str(path)}
            asked = {"threadId": thread_id, "input": [text_input("look"), picture]}
            refused = await client.refusal("turn/start", asked)
            assert await is_alive(client)

    assert refused.message == f"cannot read {str(path)!r}: not a file"
