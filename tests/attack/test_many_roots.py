"""Folders that policies and grants open: limited in number and depth before any is examined.

Work is counted, not timed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.harness.model_server import calls, says
from tests.harness.questions import answer, question
from tests.harness.threads import EPILOGUE, Stage, outline
from tests.sandbox.commands import workspace
from tests.server.serving import configuration
from treadle.config.file import ConfigError
from treadle.protocol.base import JsonValue
from treadle.sandbox.backends import bubblewrap
from treadle.sandbox.backends.bubblewrap import NamespaceSupport
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.policy import Confinement
from treadle.sandbox.root_limits import MAX_ROOT_BYTES, MAX_ROOT_COMPONENTS, MAX_ROOTS
from treadle.server.query_limits import MAX_WORDS

MANY = [f"/srv/{number}" for number in range(MAX_ROOTS + 1)]
DEEP = ["/srv", "/a" * (MAX_ROOT_COMPONENTS + 1)]
LONG = ["/" + "a" * MAX_ROOT_BYTES]
FAULTS = {
    "many": (MANY, f" must have at most {MAX_ROOTS} entries, not {MAX_ROOTS + 1}"),
    "deep": (DEEP, f"[1] must have at most {MAX_ROOT_COMPONENTS} components, not 257"),
    "nul": (["/srv\0"], "[0] must not contain a NUL character"),
    "long": (LONG, f"[0] must have at most {MAX_ROOT_BYTES} bytes, not {MAX_ROOT_BYTES + 1}"),
}
REQUEST_PERMISSIONS = "features.request_permissions_tool = true"
FOR_ONE_COMMAND = "features.exec_permission_approvals = true"

faults = pytest.mark.parametrize(("roots", "fault"), FAULTS.values(), ids=FAULTS)


@pytest.fixture
def nothing_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Boundary, "confine")


@faults
@pytest.mark.parametrize("method", ["command/exec", "turn/start", "thread/settings/update"])
@pytest.mark.usefixtures("nothing_is_examined")
async def test_a_policy_with_too_much_in_it_is_refused(
    stage: Stage, method: str, roots: list[str], fault: str
) -> None:
    """3,000 roots once took 7 s of the event loop, 20,000 deep ones more than 75 s."""
    client = await stage.client()
    thread: JsonValue = {"threadId": await client.start(cwd=str(stage.workspace))}
    others: dict[str, JsonValue] = {
        "command/exec": {"command": ["true"]},
        "turn/start": {**thread, "input": []},
        "thread/settings/update": thread,
    }
    restricted = {"type": "restricted", "readableRoots": roots}
    policies: list[tuple[JsonValue, str]] = [
        ({"type": "workspaceWrite", "writableRoots": roots}, "writableRoots"),
        (
            {"type": "workspaceWrite", "readOnlyAccess": restricted},
            "readOnlyAccess.readableRoots",
        ),
        ({"type": "readOnly", "access": restricted}, "access.readableRoots"),
    ]
    for policy, field in policies:
        error = await client.refusal(method, {**others[method], "sandboxPolicy": policy})
        path = f"sandboxPolicy.{field}"
        assert error.message == path + fault
        assert error.data == {"kind": "invalidParams", "path": path}


async def test_a_command_with_too_many_variables_is_refused(stage: Stage) -> None:
    client = await stage.client()
    env = {f"V{number}": "" for number in range(MAX_WORDS + 1)}
    error = await client.refusal("command/exec", {"command": ["true"], "env": env})
    assert error.data == {"kind": "invalidParams", "path": "env"}


@faults
def test_a_configuration_with_too_many_roots_is_refused(
    home: Path, roots: list[str], fault: str
) -> None:
    key = "sandbox_workspace_write.writable_roots"
    listed = json.dumps(roots)
    effective = configuration(home, f"[sandbox_workspace_write]\nwritable_roots = {listed}")
    with pytest.raises(ConfigError) as raised:
        effective.effective().sandbox_policy("workspace-write")
    assert (str(raised.value), raised.value.key) == (key + fault, key)


async def test_a_thread_is_not_started_with_too_many_roots_in_its_configuration(
    stage: Stage,
) -> None:
    client = await stage.client()
    config = {"sandbox_workspace_write.writable_roots": MANY}
    error = await client.refusal("thread/start", {"config": config, "sandbox": "workspace-write"})
    assert FAULTS["many"][1] in error.message


def test_a_permission_profile_with_too_many_roots_is_refused(home: Path) -> None:
    entries = "\n".join(f'"{root}" = "write"' for root in MANY)
    text = f'[permissions.p]\nextends = ":workspace"\n[permissions.p.filesystem]\n{entries}\n'
    with pytest.raises(
        ConfigError, match=f"permissions.p.filesystem must have at most {MAX_ROOTS}"
    ):
        configuration(home, text).effective().permission_profile("p")


@faults
@pytest.mark.parametrize("tool", ["request_permissions", "exec_command"])
async def test_a_model_cannot_request_too_many_roots(
    stage: Stage, tool: str, roots: list[str], fault: str
) -> None:
    stage.configure(f"{REQUEST_PERMISSIONS}\n{FOR_ONE_COMMAND}")
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="on-request", cwd=str(stage.workspace))
    wanted: JsonValue = {"file_system": {"write": roots}}
    arguments: dict[str, JsonValue] = {
        "request_permissions": {"permissions": wanted, "reason": "why"},
        "exec_command": {
            "cmd": "true",
            "sandbox_permissions": "with_additional_permissions",
            "additional_permissions": wanted,
        },
    }
    stage.model.plays(calls(tool, arguments[tool]), says("ok"))
    assert outline(await client.run(thread_id))[-2:] == EPILOGUE
    assert f"file_system.write{fault}" in stage.model.requests[-1].outputs()["call-1"]


async def test_a_grant_counts_up_to_the_limit(stage: Stage) -> None:
    """The user can narrow `/srv` to any number of folders."""
    stage.configure(REQUEST_PERMISSIONS)
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="on-request", cwd=str(stage.workspace))
    wanted: JsonValue = {"permissions": {"file_system": {"write": ["/srv"]}}, "reason": "why"}
    stage.model.plays(calls("request_permissions", wanted), says("ok"))
    turn_id = await client.start_turn(thread_id)
    grant: JsonValue = {"scope": "turn", "permissions": {"fileSystem": {"write": MANY}}}
    await answer(client, await question(client, "item/permissions/requestApproval"), grant)
    await client.end_of(turn_id)
    output = stage.model.requests[-1].outputs()["call-1"]
    assert (MANY[-2] in output, MANY[-1] in output) == (True, False)


def steps_of_mounts(confinement: Confinement) -> int:
    """Return how many functions are called for the mounts of a confinement."""
    steps = 0

    def count(_frame: object, _event: str, _function: object) -> None:
        nonlocal steps
        steps += 1

    mounts = bubblewrap._Mounts(confinement, NamespaceSupport())  # noqa: SLF001 - its work is counted
    sys.setprofile(count)
    try:
        list(mounts.arguments())
    finally:
        sys.setprofile(None)
        mounts.abandon()
    return steps


@pytest.mark.skipif(sys.platform != "linux", reason="mounts of Linux")
def test_the_mounts_of_a_confinement_take_linear_work(tmp_path: Path) -> None:
    folders = [tmp_path / f"{number}" for number in range(80)]
    for folder in folders:
        folder.mkdir()
    few, many = (steps_of_mounts(workspace(folders[0], *folders[1:count])) for count in (20, 80))
    assert many < 5 * few
