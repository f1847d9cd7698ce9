"""The login as a session with workspaces, and notices about it."""

from __future__ import annotations

import pytest

from tests.accounts.ground import Ground
from tests.harness.account_service import Send, document, raw
from tests.harness.model_server import Reply
from treadle.protocol.base import JsonValue

WHAM = "/backend-api/wham"


def session(ground: Ground, account: str, workspaces: JsonValue) -> JsonValue:
    return {
        "sessionId": "user-1",
        "email": "user@example.com",
        "userId": "user-1",
        "displayName": None,
        "imageUrl": None,
        "lastUsedAt": 1781395200,
        "isActive": True,
        "selectedWorkspaceAccountId": account,
        "workspaces": workspaces,
    }


def workspace(id_: str, **more: JsonValue) -> JsonValue:
    return {"accountId": id_, "name": None, "imageUrl": None, "kind": None, **more}


async def test_the_login_is_the_only_session(ground: Ground) -> None:
    """Upstream 0.169.0: the user is the session; names of workspaces come from the backend."""
    accounts = [
        {"id": "acc-1", "structure": "personal", "name": "N", "profile_picture_url": "http://p/"},
        {"id": "acc-2", "structure": "workspace"},
        {"id": "acc-3", "structure": "odd"},
    ]
    ground.service.answer(f"{WHAM}/accounts/check", document({"accounts": accounts}))
    client = await ground.client()
    assert await client.request("accountSession/list", {}) == {
        "sessions": [],
        "activeSessionId": None,
    }
    ground.store(ground.service.auth_json(last_refresh="2026-06-14T00:00:00Z"))

    brief = await client.request("accountSession/list", {})
    full = await client.request("accountSession/list", {"refreshWorkspaceMetadata": True})

    assert brief == {
        "sessions": [session(ground, "acc-1", [workspace("acc-1")])],
        "activeSessionId": "user-1",
    }
    assert full["sessions"][0]["workspaces"] == [
        workspace("acc-1", name="N", imageUrl="http://p/", kind="personal"),
        workspace("acc-2", kind="workspace"),
        workspace("acc-3"),
    ]


async def test_a_workspace_is_switched(ground: Ground) -> None:
    """Upstream 0.169.0: the backend exchanges the token; the file has the new account."""
    old = ground.service.auth_json()
    ground.store(old)
    path = "/backend-api/accounts/switch-workspace-token"
    new = ground.service.issue()["access_token"]
    ground.service.answer(path, document({"access_token": new}))
    client = await ground.client()

    same = {"sessionId": "user-1", "accountId": "acc-1"}
    assert (await client.request("accountSession/switch", same))["activeSessionId"] == "user-1"
    assert ground.stored() == old
    other = {"sessionId": "user-1", "accountId": "acc-2"}
    switched = await client.request("accountSession/switch", other)
    updated = (await client.until("account/updated"))[-1]["params"]

    assert switched["sessions"][0]["selectedWorkspaceAccountId"] == "acc-2"
    assert updated == {"authMode": "chatgpt", "planType": "pro"}
    assert ground.service.bodies(path) == [{"workspace_id": "acc-2"}]
    tokens = ground.stored()["tokens"]
    assert tokens == {**old["tokens"], "access_token": new, "account_id": "acc-2"}


@pytest.mark.parametrize(
    ("more", "params", "fault", "message"),
    [
        ("", {"sessionId": "other"}, document({}), "Only the active managed account session can"),
        ("", {}, document({}, 404), "Workspace switch was rejected (HTTP 404)"),
        ("", {}, document({}), "failed to switch the workspace: "),
        ("", {}, raw(b""), "failed to switch the workspace: "),
        (
            'forced_chatgpt_workspace_id = "acc-1"\n',
            {},
            document({}),
            "Login is restricted to workspace id(s) acc-1.",
        ),
    ],
)
async def test_a_refused_switch_changes_nothing(
    ground: Ground, more: str, params: JsonValue, fault: Reply | Send, message: str
) -> None:
    ground.configure(more)
    login = ground.service.auth_json()
    ground.store(login)
    ground.service.answer("/backend-api/accounts/switch-workspace-token", fault)
    client = await ground.client()

    wanted = {"sessionId": "user-1", "accountId": "acc-2", **params}
    refused = await client.refusal("accountSession/switch", wanted)

    assert refused.message.startswith(message)
    assert ground.stored() == login


@pytest.mark.parametrize(
    ("answer", "is_shown"),
    [
        ({"title": "T", "description": "D", "action": {"label": "L", "url": "https://x/"}}, True),
        (None, False),
        ({"title": "T"}, False),
    ],
)
async def test_a_notice_about_security_comes_from_the_backend(
    ground: Ground, answer: JsonValue, *, is_shown: bool
) -> None:
    """Upstream 0.169.0: without one, or without a usable one, there is none."""
    ground.service.answer(f"{WHAM}/security-setup", document({"notice": answer}))
    ground.store(ground.service.auth_json())

    found = await (await ground.client()).request("account/securitySetup/read", None)

    shown = {**(answer or {}), "accountId": "acc-1", "userId": "user-1"}
    assert found == {"notice": shown if is_shown else None}
