"""A command makes long chains of links: no path that the model names follows more than the kernel.

Each link costs a system call on the event loop, and a command can make millions of them.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.harness.model_server import calls, patches, says
from tests.harness.threads import Stage
from treadle.engine.tools import options
from treadle.protocol.base import JsonValue
from treadle.sandbox.policy import Confinement
from treadle.sandbox.root_limits import MAX_ROOT_COMPONENTS
from treadle.support.files.links import Way, follow

LENGTH = 400
PATHS = 100
FEATURES = """
[features]
request_permissions_tool = true
exec_permission_approvals = true
"""


@pytest.fixture
def chain(stage: Stage) -> Path:
    """Return the first of many links that lead to each other."""
    folder = stage.workspace / "chain"
    folder.mkdir()
    for number in range(LENGTH):
        (folder / str(number)).symlink_to(str(number + 1))
    return folder / "0"


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the links of the chain that are read."""
    found: list[str] = []
    read = os.readlink

    def readlink(path: str, **more: int) -> str:
        if "/chain/" in os.fspath(path):
            found.append(path)
        return read(path, **more)

    monkeypatch.setattr(os, "readlink", readlink)
    return found


def more(permissions: JsonValue) -> dict[str, JsonValue]:
    """Arguments of a command that needs these permissions."""
    asked = {"sandbox_permissions": "with_additional_permissions", "cmd": "true"}
    return {**asked, "additional_permissions": permissions}


async def run(stage: Stage, tool: str, arguments: JsonValue) -> None:
    """Run a turn in which the model calls one tool."""
    stage.configure(FEATURES)
    (stage.home / "rules").mkdir(exist_ok=True)
    rule = 'prefix_rule(pattern=["git"], decision="allow")\n'
    (stage.home / "rules" / "default.rules").write_text(rule)
    reply = patches(arguments) if tool == "apply_patch" else calls(tool, arguments)
    stage.model.plays(reply, says("ok"))
    client = await stage.client()
    thread_id = await client.start(
        cwd=str(stage.workspace), approvalPolicy="never", sandbox="workspace-write"
    )
    await client.run(thread_id)
    assert len(stage.model.requests) == 2


async def test_requested_permissions_follow_few_links(
    stage: Stage, chain: Path, followed: list[str]
) -> None:
    paths = [str(chain)] * PATHS
    permissions = {"file_system": {"write": paths, "read": paths}}

    await run(stage, "request_permissions", {"permissions": permissions})

    assert 0 < len(followed) <= 2 * PATHS * 50


async def test_the_permissions_of_a_command_follow_few_links(
    stage: Stage, chain: Path, followed: list[str]
) -> None:
    permissions = {"file_system": {"read": [str(chain)] * PATHS}}
    await run(stage, "exec_command", more(permissions))

    assert 0 < len(followed) <= PATHS * 3 * 50


@pytest.mark.parametrize("tool", ["request_permissions", "exec_command"])
async def test_requested_paths_are_resolved_off_the_event_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """Two hundred paths took seconds, and a response may have thousands of such calls."""
    following: set[int] = set()

    def recorded(path: str) -> Way:
        following.add(threading.get_ident())
        return follow(path)

    monkeypatch.setattr(options, "follow", recorded)
    permissions = {"file_system": {"write": ["a"]}}
    await run(stage, tool, {"permissions": permissions} | more(permissions))

    assert following
    assert threading.get_ident() not in following


@pytest.mark.parametrize("tool", ["request_permissions", "exec_command"])
async def test_requested_paths_with_too_many_links_or_parts_are_refused(
    stage: Stage, chain: Path, tool: str
) -> None:
    (stage.workspace / "deep").symlink_to(Path(*["d"] * 300))
    many = [f"{number}/{'d/' * 50}" for number in range(PATHS)]
    refusals = []
    for paths in ([str(chain)], ["deep"], many):
        permissions = {"file_system": {"write": paths}}
        stage.model.requests.clear()
        await run(stage, tool, {"permissions": permissions} | more(permissions))
        refusals.append(stage.model.requests[-1].outputs()["call-1"])

    assert "leads through too many links" in refusals[0]
    assert f"must have at most {MAX_ROOT_COMPONENTS} components" in refusals[1]
    assert f"the paths must have at most {options.MAX_PARTS} components" in refusals[2]


async def test_the_folder_of_a_git_command_follows_few_links(
    stage: Stage, chain: Path, followed: list[str]
) -> None:
    await run(stage, "exec_command", {"cmd": "git status", "workdir": str(chain)})

    assert 0 < len(followed) < LENGTH


async def test_a_patch_does_not_follow_what_the_kernel_would_not(
    stage: Stage, chain: Path, followed: list[str]
) -> None:
    await run(stage, "apply_patch", f"*** Begin Patch\n*** Add File: {chain}/a\n+x\n*** End Patch")

    assert 0 < len(followed) < LENGTH
    assert "leads through too many links" in stage.model.requests[-1].outputs()["call-1"]


async def test_the_paths_of_a_patch_are_judged_off_the_event_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch of 1,000 files below links with long targets stopped the server for half a minute."""
    judging: set[int] = set()
    may_write = Confinement.may_write

    def judged(confinement: Confinement, path: str) -> bool:
        judging.add(threading.get_ident())
        return may_write(confinement, path)

    monkeypatch.setattr(Confinement, "may_write", judged)
    moves = "*** Update File: old\n*** Move to: new\n@@\n-x\n+y\n"
    (stage.workspace / "old").write_text("x\n")
    await run(stage, "apply_patch", f"*** Begin Patch\n*** Add File: a\n+x\n{moves}*** End Patch")

    assert (stage.workspace / "new").read_text() == "y\n"
    assert judging
    assert threading.get_ident() not in judging
