"""Requirements of an administrator about logins, which the user can only narrow."""

from __future__ import annotations

import pytest

from tests.accounts.ground import CHATGPT, Ground
from treadle.protocol.base import JsonValue

START = "account/login/start"
KEY = {"type": "apiKey", "apiKey": "sk-1"}
NO_KEY = "API key login is disabled. Use ChatGPT login instead."
NO_CHATGPT = "ChatGPT login is disabled. Use API key login instead."


def require(ground: Ground, text: str) -> None:
    """Write requirements.toml."""
    folder = ground.home.parent / "system"
    folder.mkdir(exist_ok=True)
    (folder / "requirements.toml").write_text(text, "utf-8")


async def outcomes(ground: Ground) -> tuple[str | None, str | None]:
    """Return why a key and a ChatGPT login are refused."""
    client = await ground.client()
    found: list[str | None] = []
    for params in (KEY, {"type": "chatgpt"}):
        id_ = "request"
        await client.peer.send({"id": id_, "method": START, "params": params})
        while (message := await client.peer.receive()).get("id") != id_:
            pass
        found.append(message["error"]["message"] if "error" in message else None)
    return found[0], found[1]


@pytest.mark.parametrize(
    ("requirements", "config", "expected"),
    [
        ("allowed_login_methods = ['api']", "", (None, NO_CHATGPT)),
        ("allowed_login_methods = ['chatgpt']", "", (NO_KEY, None)),
        ("allowed_login_methods = ['chatgpt', 'api', 'api']", "", (None, None)),
        ("allowed_login_methods = []", "", (NO_KEY, NO_CHATGPT)),
        ("allow_remote_control = false", "", (None, None)),
        (
            "allowed_login_methods = ['chatgpt', 'api']",
            "forced_login_method = 'api'",
            (None, NO_CHATGPT),
        ),
        (
            "allowed_login_methods = ['chatgpt']",
            "forced_login_method = 'api'",
            (NO_KEY, NO_CHATGPT),
        ),
        ("allowed_chatgpt_workspaces = []", "", (None, NO_CHATGPT)),
        (
            "allowed_chatgpt_workspaces = ['managed']",
            "forced_chatgpt_workspace_id = ['other']",
            (None, NO_CHATGPT),
        ),
        (
            "allowed_chatgpt_workspaces = ['managed']",
            "forced_chatgpt_workspace_id = ['other', 'managed']",
            (None, None),
        ),
        ("", "forced_chatgpt_workspace_id = []", (None, None)),
    ],
)
async def test_requirements_and_settings_are_combined(
    ground: Ground, requirements: str, config: str, expected: JsonValue
) -> None:
    """Upstream: the same combinations."""
    require(ground, requirements)
    ground.configure(f"{config}\n")

    assert await outcomes(ground) == expected


@pytest.mark.parametrize(
    "text",
    [
        "allowed_login_methods = ['saml']",
        "allowed_login_methods = 5",
        "allowed_chatgpt_workspaces = 'managed'",
        "allowed_chatgpt_workspaces = [5]",
    ],
)
async def test_invalid_requirements_allow_no_login(ground: Ground, text: str) -> None:
    """Ours: what cannot be enforced must not become a permission."""
    require(ground, text)
    ground.store(ground.service.auth_json())
    server = await ground.server()

    assert server.credentials.current() is None
    assert server.credentials.settings.methods == ()


async def test_a_stored_login_of_another_workspace_is_not_used(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    require(ground, "allowed_chatgpt_workspaces = ['acc-1']")
    client = await ground.client()
    assert (await client.request("account/read", {}))["account"] == CHATGPT

    require(ground, "allowed_chatgpt_workspaces = ['acc-12']")
    assert (await client.request("account/read", {}))["account"] is None


async def test_store_and_backend_of_an_administrator_precede_those_of_the_user(
    ground: Ground,
) -> None:
    backend = f"{ground.service.url}/managed/backend-api"
    require(
        ground,
        f"cli_auth_credentials_store = 'ephemeral'\nchatgpt_base_url = '{backend}'\n",
    )
    ground.configure("cli_auth_credentials_store = 'file'\n")
    client = await ground.client()

    await client.request(START, KEY)
    assert not ground.file.exists()
    token = ground.service.issue()["access_token"]
    await client.request("account/logout", None)
    tokens = {"type": "chatgptAuthTokens", "accessToken": token, "chatgptAccountId": "acc-1"}
    await client.request(START, tokens)
    await client.request("account/rateLimits/read", None)

    assert len(ground.service.of_path("/managed/backend-api/wham/usage")) == 1
