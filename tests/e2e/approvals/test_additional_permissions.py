"""The model asks for more than the sandbox gives, for one command alone."""

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


def wish(command: str, **permissions: JsonValue) -> JsonValue:
    """A command that wants these permissions."""
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
    """Let the model ask and the user agree; gives the question and what was told after it."""
    turn_id = await on.begin("exec_command", arguments)
    asked = await question(on.client, ASK)
    await answer(on.client, asked, {"decision": decision})
    return asked["params"], await on.client.end_of(turn_id)


@pytest.fixture
def granted(tmp_path: Path) -> Path:
    """A folder outside the workspace."""
    folder = tmp_path / "granted"
    folder.mkdir()
    return folder


async def test_a_folder_is_open_to_the_command_that_asked_for_it_and_to_no_other(
    home: Path, tmp_path: Path, granted: Path
) -> None:
    script = f"touch {granted}/a; touch {tmp_path}/a; touch here; true"
    async with bench(home, FEATURE, **POLICY) as on:
        asked, messages = await accepted(on, wish(script, file_system={"write": [str(granted)]}))
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


async def test_a_yes_to_some_permissions_is_no_yes_to_run_without_the_sandbox(
    home: Path, tmp_path: Path, granted: Path
) -> None:
    script = f"touch {tmp_path}/outside"
    async with bench(home, FEATURE, **POLICY) as on:
        _, messages = await accepted(on, wish(script, file_system={"write": [str(granted)]}))

    assert [item["exitCode"] for item in commands(messages)] == [1]
    assert ASK not in outline(messages)
    assert not (tmp_path / "outside").exists()


async def test_a_yes_to_a_dangerous_command_is_no_yes_to_run_it_without_the_sandbox(
    home: Path, tmp_path: Path, granted: Path
) -> None:
    async with bench(home, **POLICY) as on:
        _, messages = await accepted(on, {"cmd": f"rm -rf {granted}", "login": False})

    assert [item["exitCode"] for item in commands(messages)] == [1]
    assert (tmp_path / "granted").exists()


async def test_paths_are_seen_from_the_folder_of_the_command(home: Path) -> None:
    async with bench(home, FEATURE, **POLICY) as on:
        folder = on.stage.workspace / "below" / "open"
        folder.mkdir(parents=True)
        arguments = wish("touch open/a", file_system={"write": ["open"]}) | {"workdir": "below"}
        await accepted(on, arguments)

    assert (folder / "a").exists()


async def test_the_user_is_asked_about_the_place_that_a_link_leads_to(
    home: Path, granted: Path
) -> None:
    """And that place is what a yes opens, wherever the link leads by then."""
    async with bench(home, FEATURE, **POLICY | {"sandbox": "workspace-write"}) as on:
        (on.stage.workspace / "link").symlink_to(granted)
        asked, _ = await accepted(on, wish("touch link/a", file_system={"write": ["link"]}))

    assert asked["additionalPermissions"]["fileSystem"]["write"] == [str(granted)]
    assert (granted / "a").exists()


async def test_what_was_approved_for_the_session_is_not_asked_again(
    home: Path, granted: Path
) -> None:
    arguments = wish(f"date >> {granted}/a", file_system={"write": [str(granted)]})
    async with bench(home, FEATURE, **POLICY) as on:
        await accepted(on, arguments, "acceptForSession")
        messages, _ = await on.call("exec_command", arguments)

    assert ASK not in outline(messages)
    assert len((granted / "a").read_text().splitlines()) == 2


async def test_what_was_granted_before_need_not_be_asked_for(home: Path, granted: Path) -> None:
    features = f"{FEATURE}\nfeatures.request_permissions_tool = true"
    wanted = {"file_system": {"write": [str(granted)]}}
    async with bench(home, features, **POLICY) as on:
        turn_id = await on.begin("request_permissions", {"permissions": wanted})
        asked = await question(on.client, "item/permissions/requestApproval")
        grant = {"permissions": {"fileSystem": {"write": [str(granted)]}}, "scope": "session"}
        await answer(on.client, asked, grant)
        await on.client.end_of(turn_id)
        messages, _ = await on.call("exec_command", wish(f"touch {granted}/a", **wanted), "call-2")

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
        ("", wish("true", network={"enabled": True}), OFF),
        (FEATURE, wish("true"), EMPTY),
        (FEATURE, wish("true", network={"enabled": False}, file_system={"write": []}), EMPTY),
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
async def test_a_request_that_cannot_be_put_is_refused(
    home: Path, feature: str, arguments: JsonValue, output: str
) -> None:
    """Upstream's words."""
    async with bench(home, feature, **POLICY) as on:
        messages, said = await on.call("exec_command", arguments)

    assert said == output
    assert params_of(messages, ASK) == []
    assert commands(messages) == []


async def test_the_model_is_told_of_them_where_they_are_on(home: Path) -> None:
    for feature, offered in (("", False), (FEATURE, True)):
        (folder := home.parent / str(offered)).mkdir()
        (inner := folder / "home").mkdir()
        async with bench(inner, feature, **POLICY) as on:
            await on.client.run(on.thread_id)
            tools = on.stage.model.requests[-1].body["tools"]
        (tool,) = [tool for tool in tools if tool.get("name") == "exec_command"]
        assert ("additional_permissions" in tool["parameters"]["properties"]) is offered
