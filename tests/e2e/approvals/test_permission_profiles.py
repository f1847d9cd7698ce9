"""Permission profiles that clients choose by name, as the Codex terminal UI does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.commands import bench
from tests.harness.golden import Golden
from tests.harness.placeholders import placeholders
from tests.harness.threads import Client, Stage
from tests.server.reference import ask_reference
from tests.server.serving import configuration, refusal, result, serving
from treadle.protocol.base import JsonValue

WORKSPACE: JsonValue = {
    "type": "workspaceWrite",
    "writableRoots": [],
    "networkAccess": False,
    "excludeTmpdirEnvVar": False,
    "excludeSlashTmp": False,
}
READ_ONLY: JsonValue = {"type": "readOnly", "networkAccess": False}
TOUCH: JsonValue = {"cmd": "touch made"}


def named(id_: str) -> JsonValue:
    return {"id": id_, "extends": None}


async def update(
    client: Client, thread_id: str, **change: JsonValue
) -> tuple[JsonValue, JsonValue]:
    """Change the settings; return the policy and the profile that are published."""
    await client.request("thread/settings/update", {"threadId": thread_id, **change})
    settings = (await client.until("thread/settings/updated"))[-1]["params"]["threadSettings"]
    return settings["sandboxPolicy"], settings["activePermissionProfile"]


async def test_a_profile_applies_until_another_policy_is_set(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(sandbox="danger-full-access")

    assert await update(client, thread_id, permissions=":workspace") == (
        WORKSPACE,
        named(":workspace"),
    )
    assert await update(client, thread_id, permissions=":read-only") == (
        READ_ONLY,
        named(":read-only"),
    )
    assert await update(client, thread_id, sandboxPolicy=WORKSPACE) == (WORKSPACE, None)


async def test_commands_follow_the_chosen_profile(home: Path) -> None:
    async with bench(home, approvalPolicy="never", sandbox="workspace-write") as work:
        made = work.stage.workspace / "made"
        await update(work.client, work.thread_id, permissions=":read-only")
        await work.call("exec_command", TOUCH)
        assert not made.exists()
        await update(work.client, work.thread_id, permissions=":workspace")
        await work.call("exec_command", TOUCH, "call-2")
        assert made.exists()


async def test_a_turn_names_a_profile_and_the_thread_stores_it(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(sandbox="workspace-write")
    await client.run(thread_id, permissions=":read-only")
    await stage.restart()
    again = await stage.client()
    resumed = await again.request("thread/resume", {"threadId": thread_id})
    forked = await again.request(
        "thread/fork", {"threadId": thread_id, "permissions": ":workspace"}
    )

    assert (resumed["sandbox"], resumed["activePermissionProfile"]) == (
        READ_ONLY,
        named(":read-only"),
    )
    assert (forked["sandbox"], forked["activePermissionProfile"]) == (
        WORKSPACE,
        named(":workspace"),
    )


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("turn/start", {"input": [], "sandboxPolicy": READ_ONLY}),
        ("thread/settings/update", {"sandboxPolicy": READ_ONLY}),
    ],
)
async def test_a_profile_and_a_policy_together_are_rejected(
    stage: Stage, method: str, params: dict[str, JsonValue]
) -> None:
    client = await stage.client()
    thread_id = await client.start()
    answer = await client.peer.request(
        method, {"threadId": thread_id, "permissions": ":workspace", **params}
    )

    assert answer["error"] == {
        "code": -32600,
        "message": "`permissions` cannot be combined with `sandboxPolicy`",
        "data": {"kind": "invalidParams", "path": "permissions"},
    }


MINE = """
default_permissions = "mine"
[permissions.mine]
extends = "more"
[permissions.more]
extends = ":workspace"
[permissions.more.filesystem]
"/srv/shared" = "write"
[permissions.more.network]
enabled = true
"""
ONLINE = '[permissions.p]\nextends = ":read-only"\n[permissions.p.network]\nenabled = true\n'


NEW_THREADS: dict[str, tuple[str, JsonValue]] = {
    "a built-in profile": ("", {"permissions": ":danger-full-access"}),
    "the default profile": (MINE, {}),
    "a sandbox beside the default profile": (MINE, {"sandbox": "read-only"}),
    "a sandbox mode beside the default profile": (MINE, {"config": {"sandbox_mode": "read-only"}}),
    "a named profile": (ONLINE, {"permissions": "p"}),
    "a sandbox mode beside a default profile in the file": (
        'sandbox_mode = "danger-full-access"\ndefault_permissions = ":read-only"',
        {},
    ),
}


@pytest.mark.parametrize("name", NEW_THREADS)
async def test_a_new_thread_gets_the_same_permissions_as_in_the_reference(
    golden: Golden, home: Path, name: str
) -> None:
    text, params = NEW_THREADS[name]
    settings = configuration(home, text)
    if golden.runs_reference:
        answer = ask_reference(golden.program, home, "thread/start", params)
    else:
        async with serving(settings) as peer:
            answer = await result(peer, "thread/start", params)

    permissions = {key: answer[key] for key in ("sandbox", "activePermissionProfile")}
    golden.check(name, placeholders(permissions, {str(home): "<home>"}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "default_permissions refers to undefined profile `p`"),
        (
            '[permissions.p]\nextends = "p"',
            "permissions profile inheritance cycle detected: p -> p",
        ),
        (
            '[permissions.p]\nextends = "q"',
            "permissions profile `p` extends undefined profile `q`",
        ),
        (
            '[permissions.p]\nextends = ":all"',
            "permissions profile `p` cannot extend unsupported built-in profile `:all`",
        ),
    ],
)
async def test_an_unknown_profile_is_rejected(home: Path, text: str, reason: str) -> None:
    """Upstream's texts."""
    async with serving(configuration(home, text)) as peer:
        error = await refusal(peer, "thread/start", {"permissions": "p"})

    assert error == {
        "code": -32600,
        "message": f"failed to load configuration: {reason}",
        "data": {"kind": "invalidConfig"},
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not extend another profile"),
        (
            'extends = ":workspace"\nfilesystem = {"/srv/secret" = "deny"}',
            "has the entry `/srv/secret`",
        ),
        (
            'extends = ":read-only"\nfilesystem = {"/srv/shared" = "write"}',
            "opens folders without the workspace",
        ),
        (
            'extends = ":workspace"\nnetwork = {mitm = {enabled = true}}',
            "has the entry `network.mitm`",
        ),
    ],
)
async def test_a_profile_that_a_policy_cannot_express_is_rejected(
    home: Path, text: str, reason: str
) -> None:
    """Upstream accepts them; to apply a part would allow what they forbid."""
    async with serving(configuration(home, f"[permissions.p]\n{text}")) as peer:
        error = await refusal(peer, "thread/start", {"permissions": "p"})

    assert error["message"] == (
        f"failed to load configuration: permissions profile `p` {reason}, "
        "which this server cannot enforce"
    )


async def test_an_administrator_decides_which_profiles_exist(home: Path) -> None:
    demands = 'allowed_sandbox_modes = ["read-only"]\n'
    async with serving(configuration(home, requirements=demands)) as peer:
        error = await refusal(peer, "thread/start", {"permissions": ":workspace"})

    assert error["message"] == (
        "`sandbox_mode` = workspace-write is not allowed here, only `read-only`"
    )
