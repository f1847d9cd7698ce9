"""The server reads for the model only what commands of the thread may read, whatever links say."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from tests.harness.model_server import calls, patches, says
from tests.harness.threads import Client, Refused, Stage
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


def chained(workspace: Path, target: Path) -> str:
    """Create links that lead to a folder, fewer than the kernel follows, with very many parts."""
    for number in range(12):
        (workspace / f"l{number}").symlink_to("./" * 2000 + f"l{number + 1}")
    (workspace / "l12").symlink_to(target)
    return "l0"


async def test_links_with_very_many_parts_lead_to_no_file_that_commands_may_not_read(
    stage: Stage,
) -> None:
    """The kernel follows them further than the check, which took them for files of the project."""
    (stage.home / "auth.json").write_text(SECRET)
    (stage.home / "skill").write_text(f"---\nname: x\ndescription: {SECRET}\n---\n")
    chain = chained(stage.workspace, stage.home)
    assert (stage.workspace / chain / "auth.json").read_text() == SECRET
    skill = stage.workspace / ".agents" / "skills" / "x"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").symlink_to(stage.workspace / chain / "skill")
    (stage.workspace / "AGENTS.md").symlink_to(f"{chain}/auth.json")
    stage.model.plays(says("ok"))
    client, thread_id = await start(stage)

    await client.run(thread_id, sandboxPolicy=only(stage.workspace))

    assert stage.model.requests
    assert asked(stage, SECRET) == []


async def test_a_patch_through_links_with_very_many_parts_reveals_no_line(stage: Stage) -> None:
    """Whether its lines match was shown for any file."""
    (stage.home / "auth.json").write_text(f"{SECRET}\n")
    path = f"{chained(stage.workspace, stage.home)}/auth.json"
    update = f"*** Begin Patch\n*** Update File: {path}\n@@\n-{SECRET}\n+x\n*** End Patch"
    stage.model.plays(patches(update, "p1"), patches(update.replace(SECRET, "other"), "p2"))
    client, thread_id = await start(stage)

    await client.run(thread_id, sandboxPolicy=only(stage.workspace))

    outputs = stage.model.requests[-1].outputs()
    assert outputs["p1"] == outputs["p2"]
    assert (stage.home / "auth.json").read_text() == f"{SECRET}\n"


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


async def attach(client: Client, thread_id: str, kind: str, path: Path, **more: JsonValue) -> None:
    """Run a turn whose input names a file."""
    part = {"type": kind, "name": "x", "path": str(path)}
    params = {"threadId": thread_id, "input": [part, {"type": "text", "text": "go"}], **more}
    turn = await client.request("turn/start", params)
    await client.end_of(turn["turn"]["id"])


def shown(stage: Stage) -> bytes:
    """The contents of the images and sounds that the model has received."""
    texts = [
        part.get("image_url") or part.get("audio_url") or ""
        for request in stage.model.requests
        for item in request.body["input"]
        for part in item.get("content") or []
    ]
    return b"".join(base64.b64decode(text.partition(",")[2]) for text in texts)


@pytest.mark.parametrize("kind", ["localImage", "localAudio"])
async def test_an_attached_file_of_the_workspace_does_not_show_the_environment(
    stage: Stage, kind: str
) -> None:
    (stage.workspace / "a.png").symlink_to(ENVIRONMENT)
    stage.model.plays(says("ok"))
    client, thread_id = await start(stage)

    await attach(client, thread_id, kind, stage.workspace / "a.png")

    assert stage.model.requests
    assert MARK.encode() not in shown(stage)


async def test_an_attached_file_leads_to_no_file_that_commands_may_not_read(stage: Stage) -> None:
    (stage.home / "auth.json").write_text(SECRET)
    (stage.workspace / "a.png").symlink_to(stage.home / "auth.json")
    client, thread_id = await start(stage)

    with pytest.raises(Refused, match=r"cannot read .*a\.png.*sandbox"):
        await attach(
            client,
            thread_id,
            "localImage",
            stage.workspace / "a.png",
            sandboxPolicy=only(stage.workspace),
        )


async def test_the_user_may_attach_a_file_that_commands_may_not_read(
    stage: Stage, tmp_path: Path
) -> None:
    (stage.home / "photo.png").write_text(SECRET)
    named = tmp_path / "pictures"
    named.symlink_to(stage.home)
    stage.model.plays(says("ok"))
    client, thread_id = await start(stage, sandbox="read-only")
    policy = {"type": "readOnly", "access": only(stage.workspace)["readOnlyAccess"]}

    await attach(client, thread_id, "localImage", named / "photo.png", sandboxPolicy=policy)

    assert shown(stage) == SECRET.encode()


async def test_a_skill_that_a_command_replaces_by_a_link_is_left_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill, link = stage.workspace / "src" / "SKILL.md", stage.workspace / "src" / "link"
    skill.parent.mkdir()
    skill.write_text("---\nname: x\ndescription: fine\n---\nBODY")
    (stage.workspace / ".agents" / "skills").mkdir(parents=True)
    (stage.workspace / ".agents" / "skills" / "x").symlink_to(skill.parent)
    (stage.home / "auth.json").write_text(SECRET)
    link.symlink_to(stage.home / "auth.json")
    stage.model.plays(*[says("ok")] * 3)
    client, thread_id = await start(stage)
    await attach(client, thread_id, "skill", skill)
    exchanges = 0

    def check(_mode: int, path: str) -> None:
        """Exchange the file and the link before it is opened, and again afterwards."""
        nonlocal exchanges
        if os.fspath(path) == str(skill):
            exchanges += 1
            exchange(skill.parent, "SKILL.md", "link")

    monkeypatch.setattr("treadle.support.files.reading._check", check)
    await attach(client, thread_id, "skill", skill)

    assert exchanges == 2
    assert asked(stage, "BODY") == [0, 1]
    assert asked(stage, SECRET) == []


async def test_a_further_skill_folder_leads_to_no_file_that_commands_may_not_read(
    stage: Stage,
) -> None:
    (stage.home / "notes.md").write_text(f"---\nname: x\ndescription: {SECRET}\n---\n")
    root = stage.workspace / "skills"
    (root / "x").mkdir(parents=True)
    (root / "x" / "SKILL.md").symlink_to(stage.home / "notes.md")
    (root / "y").mkdir()
    (root / "y" / "SKILL.md").write_text("---\nname: y\ndescription: of the client\n---\n")
    stage.model.plays(says("ok"), says("ok"))
    client, thread_id = await start(stage)
    await client.request("skills/extraRoots/set", {"extraRoots": [str(root)]})

    policy = only(stage.workspace)
    await client.run(thread_id, sandboxPolicy=policy)
    await attach(client, thread_id, "skill", root / "x" / "SKILL.md", sandboxPolicy=policy)

    assert asked(stage, "of the client") == [0, 1]
    assert asked(stage, SECRET) == []


def exchange(folder: Path, one: str, other: str) -> None:
    for source, target in ((one, "kept"), (other, one), ("kept", other)):
        (folder / source).replace(folder / target)


async def test_a_patch_does_not_read_what_a_command_links_to_meanwhile(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its lines match would show the content of the file."""
    (stage.home / "auth.json").write_text(f"{SECRET}\n")
    (stage.workspace / "link").symlink_to(stage.home / "auth.json")
    file = stage.workspace / "a"
    file.write_text("fine\n")

    def check(_mode: int, path: str) -> None:
        """Exchange the file and the link before it is opened, and again afterwards."""
        if path == str(file):
            exchange(stage.workspace, "a", "link")

    patch = f"*** Begin Patch\n*** Update File: a\n@@\n-{SECRET}\n+x\n*** End Patch"
    stage.model.plays(patches(patch), says("ok"))
    client, thread_id = await start(stage)
    monkeypatch.setattr("treadle.support.files.reading._check", check)

    await client.run(thread_id, sandboxPolicy=only(stage.workspace))

    output = stage.model.requests[-1].outputs()["call-1"]
    assert f"the sandbox does not allow reading {file}" in output


async def test_a_patch_that_is_planned_again_does_not_copy_what_a_link_leads_to(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.home / "auth.json").write_text(f"{SECRET}\n")
    (stage.workspace / "link").symlink_to(stage.home / "auth.json")
    for name in ("a", "changing"):
        (stage.workspace / name).write_text("fine\n")

    def check(_mode: int, path: str) -> None:
        """Change a file, and exchange another with a link, when the patch is applied."""
        if path == "changing" and not (stage.workspace / "a").is_symlink():
            (stage.workspace / "changing").write_text("other\nfine\n")
            exchange(stage.workspace, "a", "link")

    patch = """\
*** Begin Patch
*** Update File: changing
@@
-fine
+better
*** Update File: a
*** Move to: b
@@
+x
*** End Patch"""
    stage.model.plays(patches(patch), says("ok"))
    client, thread_id = await start(stage)
    monkeypatch.setattr("treadle.support.files.reading._check", check)

    await client.run(thread_id, sandboxPolicy=only(stage.workspace))

    assert (stage.workspace / "a").is_symlink()
    assert not (stage.workspace / "b").exists()
    output = stage.model.requests[-1].outputs()["call-1"]
    assert "the sandbox does not allow reading" in output
