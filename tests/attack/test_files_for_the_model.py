"""The server reads for the model only what commands of the thread may read, whatever links say."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.model_server import calls, patches, says
from tests.harness.threads import Client, Stage
from treadle.protocol.base import JsonValue

ENVIRONMENT = "/proc/self/environ"
# In every environment, and nowhere else in a request.
MARK = "PATH=/"
SECRET = "key-in-the-home"


def asked(stage: Stage, text: str) -> list[int]:
    """The numbers of the requests to the model that contain a text."""
    requests = [json.dumps(request.body, ensure_ascii=False) for request in stage.model.requests]
    return [number for number, request in enumerate(requests) if text in request]


async def start(stage: Stage, sandbox: str = "workspace-write") -> tuple[Client, str]:
    client = await stage.client()
    thread_id = await client.start(
        cwd=str(stage.workspace), approvalPolicy="never", sandbox=sandbox
    )
    return client, thread_id


def only(workspace: Path) -> JsonValue:
    """The policy under which commands may read and write the workspace, and no keys."""
    access = {"type": "restricted", "readableRoots": [str(workspace)]}
    return {
        "type": "workspaceWrite",
        "excludeSlashTmp": True,
        "excludeTmpdirEnvVar": True,
        "readOnlyAccess": access,
    }


async def test_instructions_of_a_project_do_not_contain_the_environment(stage: Stage) -> None:
    (stage.workspace / "AGENTS.md").symlink_to(ENVIRONMENT)
    stage.model.plays(says("ok"))
    client, thread_id = await start(stage)

    await client.run(thread_id)

    assert stage.model.requests
    assert asked(stage, MARK) == []


async def test_instructions_may_be_a_link_to_a_file_that_commands_may_read(stage: Stage) -> None:
    (stage.workspace / "CLAUDE.md").write_text("Use tabs.")
    (stage.workspace / "AGENTS.md").symlink_to("CLAUDE.md")
    stage.model.plays(says("ok"))
    client, thread_id = await start(stage)

    await client.run(thread_id, sandboxPolicy=only(stage.workspace))

    assert asked(stage, "Use tabs.") == [0]


async def test_links_of_a_project_lead_to_no_file_that_commands_may_not_read(stage: Stage) -> None:
    (stage.home / "auth.json").write_text(SECRET)
    (stage.home / "skill").write_text(f"---\nname: x\ndescription: {SECRET}\n---\n")
    skill = stage.workspace / ".agents" / "skills" / "x"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").symlink_to(stage.home / "skill")
    (stage.workspace / "AGENTS.md").symlink_to(stage.home / "auth.json")
    stage.model.plays(says("ok"))
    client, thread_id = await start(stage)

    await client.run(thread_id, sandboxPolicy=only(stage.workspace))

    assert stage.model.requests
    assert asked(stage, SECRET) == []


async def test_a_sub_agent_is_given_no_file_that_describes_the_server(stage: Stage) -> None:
    items = [{"type": "skill", "name": "x", "path": ENVIRONMENT}, {"type": "text", "text": "go"}]
    stage.model.plays(calls("spawn_agent", {"items": items}), *[says("ok")] * 3)
    client, thread_id = await start(stage)

    await client.run(thread_id)

    assert stage.model.requests
    assert asked(stage, MARK) == []


async def test_a_patch_does_not_show_the_environment(stage: Stage) -> None:
    patch = f"*** Begin Patch\n*** Delete File: {ENVIRONMENT}\n*** End Patch"
    stage.model.plays(patches(patch), says("ok"))
    client, thread_id = await start(stage, sandbox="danger-full-access")

    messages = await client.run(thread_id)

    assert MARK not in json.dumps(messages)
    output = stage.model.requests[-1].outputs()["call-1"]
    assert f"path `{ENVIRONMENT}` is a file of the kernel" in output
