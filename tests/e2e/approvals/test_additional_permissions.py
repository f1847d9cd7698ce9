"""The model requests more permissions than the sandbox gives, for one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.commands import Bench, bench, commands
from tests.harness.questions import answer, question
from tests.harness.threads import outline, params_of
from treadle.protocol.base import JsonValue

ASK = "item/commandExecution/requestApproval"
POLICY: dict[str, JsonValue] = {"approvalPolicy": "on-request", "sandbox": "read-only"}
FEATURE = "features.exec_permission_approvals = true"


def command_with(command: str, **permissions: JsonValue) -> JsonValue:
    """A command that requests these permissions."""
    return {
        "cmd": command,
        "login": False,
        "sandbox_permissions": "with_additional_permissions",
        "additional_permissions": permissions,
        "justification": "it is needed",
    }


async def accepted(
    on: Bench, arguments: JsonValue, decision: str = "accept"
) -> tuple[JsonValue, list[JsonValue]]:
    """Let the model request and the user accept; return the server request and what follows it."""
    turn_id = await on.start_call("exec_command", arguments)
    asked = await question(on.client, ASK)
    await answer(on.client, asked, {"decision": decision})
    return asked["params"], await on.client.end_of(turn_id)


@pytest.fixture
def granted(tmp_path: Path) -> Path:
    """A folder outside the workspace."""
    folder = tmp_path / "granted"
    folder.mkdir()
    return folder


async def test_a_folder_is_open_only_to_the_command_that_requested_it(
    home: Path, tmp_path: Path, granted: Path
) -> None:
    script = f"touch {granted}/a; touch {tmp_path}/a; touch here; true"
    async with bench(home, FEATURE, **POLICY) as on:
        asked, messages = await accepted(
            on, command_with(script, file_system={"write": [str(granted)]})
        )
        later, _ = await on.call("exec_command", {"cmd": f"touch {granted}/b", "login": False})
        workspace = on.stage.workspace

    entry = {"path": {"type": "path", "path": str(granted)}, "access": "write"}
    assert {
        key: asked[key] for key in ("additionalPermissions", "availableDecisions", "reason")
    } == {
        "additionalPermissions": {
            "network": None,
            "fileSystem": {"read": None, "write": [str(granted)], "entries": [entry]},
        },
        "availableDecisions": ["accept", "cancel"],
        "reason": "it is needed",
    }
    assert [item["exitCode"] for item in commands(messages)] == [0]
    assert [item["exitCode"] for item in commands(later)] == [1]
    assert (granted / "a").exists()
    assert not (granted / "b").exists()
    assert not (tmp_path / "a").exists()
    assert not (workspace / "here").exists()


async def test_accepting_some_permissions_does_not_remove_the_sandbox(
    home: Path, tmp_path: Path, granted: Path
) -> None:
    script = f"touch {tmp_path}/outside"
    async with bench(home, FEATURE, **POLICY) as on:
        _, messages = await accepted(
            on, command_with(script, file_system={"write": [str(granted)]})
        )

    assert [item["exitCode"] for item in commands(messages)] == [1]
    assert ASK not in outline(messages)
    assert not (tmp_path / "outside").exists()


async def test_accepting_a_dangerous_command_does_not_remove_the_sandbox(
    home: Path, tmp_path: Path, granted: Path
) -> None:
    async with bench(home, **POLICY) as on:
        _, messages = await accepted(on, {"cmd": f"rm -rf {granted}", "login": False})

    assert [item["exitCode"] for item in commands(messages)] == [1]
    assert (tmp_path / "granted").exists()


async def test_paths_are_relative_to_the_folder_of_the_command(home: Path) -> None:
    async with bench(home, FEATURE, **POLICY) as on:
        folder = on.stage.workspace / "below" / "open"
        folder.mkdir(parents=True)
        arguments = command_with("touch open/a", file_system={"write": ["open"]}) | {
            "workdir": "below"
        }
        await accepted(on, arguments)

    assert (folder / "a").exists()


async def test_the_server_request_shows_the_target_of_a_link(home: Path, granted: Path) -> None:
    """The answer opens that target, wherever the link points by then."""
    async with bench(home, FEATURE, **POLICY | {"sandbox": "workspace-write"}) as on:
        (on.stage.workspace / "link").symlink_to(granted)
        asked, _ = await accepted(on, command_with("touch link/a", file_system={"write": ["link"]}))

    assert asked["additionalPermissions"]["fileSystem"]["write"] == [str(granted)]
    assert (granted / "a").exists()


async def test_permissions_approved_for_the_session_are_not_requested_again(
    home: Path, granted: Path
) -> None:
    arguments = command_with(f"date >> {granted}/a", file_system={"write": [str(granted)]})
    async with bench(home, FEATURE, **POLICY) as on:
        await accepted(on, arguments, "acceptForSession")
        messages, _ = await on.call("exec_command", arguments)

    assert ASK not in outline(messages)
    assert len((granted / "a").read_text().splitlines()) == 2


async def test_permissions_granted_before_are_not_requested_again(
    home: Path, granted: Path
) -> None:
    features = f"{FEATURE}\nfeatures.request_permissions_tool = true"
    wanted = {"file_system": {"write": [str(granted)]}}
    async with bench(home, features, **POLICY) as on:
        turn_id = await on.start_call("request_permissions", {"permissions": wanted})
        asked = await question(on.client, "item/permissions/requestApproval")
        grant = {"permissions": {"fileSystem": {"write": [str(granted)]}}, "scope": "session"}
        await answer(on.client, asked, grant)
        await on.client.end_of(turn_id)
        messages, _ = await on.call(
            "exec_command", command_with(f"touch {granted}/a", **wanted), "call-2"
        )

    assert ASK not in outline(messages)
    assert (granted / "a").exists()


OFF = (
    "additional permissions are disabled; enable `features.exec_permission_approvals` before "
    "using `with_additional_permissions`"
)
EMPTY = (
    "`additional_permissions` must include at least one requested permission in `network` or "
    "`file_system`"
)
MISSING = (
    "missing `additional_permissions`; provide at least one of `network` or `file_system` when "
    "using `with_additional_permissions`"
)
UNSAID = (
    "`additional_permissions` requires `sandbox_permissions` set to `with_additional_permissions`"
)


@pytest.mark.parametrize(
    ("feature", "arguments", "output"),
    [
        ("", command_with("true", network={"enabled": True}), OFF),
        (FEATURE, command_with("true"), EMPTY),
        (
            FEATURE,
            command_with("true", network={"enabled": False}, file_system={"write": []}),
            EMPTY,
        ),
        (
            FEATURE,
            {"cmd": "true", "sandbox_permissions": "with_additional_permissions"},
            MISSING,
        ),
        (
            FEATURE,
            {"cmd": "true", "additional_permissions": {"network": {"enabled": True}}},
            UNSAID,
        ),
    ],
)
async def test_an_invalid_request_is_rejected(
    home: Path, feature: str, arguments: JsonValue, output: str
) -> None:
    """Upstream's texts."""
    async with bench(home, feature, **POLICY) as on:
        messages, said = await on.call("exec_command", arguments)

    assert said == output
    assert params_of(messages, ASK) == []
    assert commands(messages) == []


async def test_the_model_is_informed_of_the_feature_where_it_is_enabled(home: Path) -> None:
    for feature, offered in (("", False), (FEATURE, True)):
        (folder := home.parent / str(offered)).mkdir()
        (inner := folder / "home").mkdir()
        async with bench(inner, feature, **POLICY) as on:
            await on.client.run(on.thread_id)
            tools = on.stage.model.requests[-1].body["tools"]
        (tool,) = [tool for tool in tools if tool.get("name") == "exec_command"]
        assert ("additional_permissions" in tool["parameters"]["properties"]) is offered
