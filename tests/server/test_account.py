"""Signing in and out, and which key is used where."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.server.reference import ask_reference
from tests.server.serving import (
    client_of,
    configuration,
    notifications,
    refusal,
    result,
    running,
    serving,
)
from treadle.accounts.credentials import CredentialStore
from treadle.protocol.base import JsonValue

OPENAI = 'model = "m"\nmodel_provider = "openai"'
ENVIRON = {"OPENAI_API_KEY": "env-openai", "MY_KEY": "env-mine", "EMPTY": ""}
COMPLETED = {
    "method": "account/login/completed",
    "params": {"loginId": None, "success": True, "error": None, "onboardingEntrypoint": None},
}


def updated(mode: str | None) -> JsonValue:
    return {"method": "account/updated", "params": {"authMode": mode, "planType": None}}


def account(kind: str | None, *, required: bool = True) -> JsonValue:
    return {
        "account": None if kind is None else {"type": kind},
        "requiresOpenaiAuth": required,
        "workspaceRouting": None,
    }


def list_hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


class TestAccount:
    async def test_a_provider_without_login_has_no_account(self, home: Path) -> None:
        settings = configuration(home, environ={})
        settings.credentials.sign_in("sk-1")
        (home / "config.toml").write_text('model_provider = "scripted"', "utf-8")
        async with serving(settings) as peer:
            assert await result(peer, "account/read", {}) == account(None, required=False)

    async def test_openai_needs_a_login(self, home: Path) -> None:
        async with serving(configuration(home, OPENAI)) as peer:
            assert await result(peer, "account/read", {}) == account(None)

    async def test_a_key_in_the_environment_is_a_login(self, home: Path) -> None:
        environ = {"OPENAI_API_KEY": "sk-1"}
        async with serving(configuration(home, OPENAI, environ=environ)) as peer:
            assert await result(peer, "account/read", {}) == account("apiKey")

    async def test_an_account_can_be_read_when_the_configuration_is_broken(
        self, home: Path
    ) -> None:
        """Clients exit if this fails, and a user could not repair the file from within them."""
        async with serving(configuration(home, "model = [")) as peer:
            await notifications(peer, 1)
            assert await result(peer, "account/read", {}) == account(None, required=False)


class TestLogin:
    async def test_a_key_is_stored_as_codex_stores_it(self, home: Path) -> None:
        async with serving(configuration(home, OPENAI)) as peer:
            login = {"type": "apiKey", "apiKey": " sk-test \n"}
            assert await result(peer, "account/login/start", login) == {"type": "apiKey"}
            assert await notifications(peer, 2) == [COMPLETED, updated("apikey")]
            assert await result(peer, "account/read", {}) == account("apiKey")

        file = home / "auth.json"
        assert json.loads(file.read_text("utf-8")) == {
            "auth_mode": "apikey",
            "OPENAI_API_KEY": "sk-test",
        }
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert not list_hidden(home)

    def test_the_reference_can_use_the_login(self, home: Path, reference: str) -> None:
        CredentialStore(home, {}).sign_in("sk-1")

        answer = ask_reference(reference, home, "account/read", {})

        assert answer == account("apiKey")

    async def test_signing_out_removes_the_key(self, home: Path) -> None:
        settings = configuration(home, OPENAI)
        settings.credentials.sign_in("sk-1")
        async with serving(settings) as peer:
            assert await result(peer, "account/logout") == {}
            assert await notifications(peer, 1) == [updated(None)]
            assert await result(peer, "account/read", {}) == account(None)
            assert await result(peer, "account/logout") == {}
            assert await notifications(peer, 1) == [updated(None)]

        assert not (home / "auth.json").exists()

    async def test_every_client_is_notified_of_a_login(self, home: Path) -> None:
        async with (
            running(configuration(home, OPENAI)) as server,
            client_of(server) as one,
            client_of(server) as two,
        ):
            await result(one, "account/login/start", {"type": "apiKey", "apiKey": "sk-1"})

            assert await notifications(two, 2) == [COMPLETED, updated("apikey")]

    async def test_a_key_selects_openai_where_nothing_was_configured(self, home: Path) -> None:
        async with serving(configuration(home)) as peer:
            assert await result(peer, "account/read", {}) == account(None, required=False)
            await result(peer, "account/login/start", {"type": "apiKey", "apiKey": "sk-1"})
            await notifications(peer, 2)
            assert await result(peer, "account/read", {}) == account("apiKey")

    @pytest.mark.parametrize(
        ("params", "message", "kind"),
        [
            ({"type": "apiKey", "apiKey": " "}, "apiKey must not be empty", "invalidRequest"),
            (
                {"type": "amazonBedrock", "apiKey": "k", "region": "r"},
                "login of type `amazonBedrock` is not supported: no provider for Amazon Bedrock",
                "unsupported",
            ),
        ],
    )
    async def test_other_logins_are_refused_with_a_reason(
        self, home: Path, params: JsonValue, message: str, kind: str
    ) -> None:
        async with serving(configuration(home)) as peer:
            error = await refusal(peer, "account/login/start", params)

        assert (error["code"], error["message"]) == (-32600, message)
        assert error["data"]["kind"] == kind

    async def test_the_configuration_can_forbid_keys(self, home: Path) -> None:
        async with serving(configuration(home, 'forced_login_method = "chatgpt"')) as peer:
            params = {"type": "apiKey", "apiKey": "sk-1"}
            error = await refusal(peer, "account/login/start", params)

        assert error["message"] == "API key login is disabled. Use ChatGPT login instead."
        assert not (home / "auth.json").exists()

    async def test_there_is_no_login_to_cancel(self, home: Path) -> None:
        async with serving(configuration(home)) as peer:
            id_ = "01a1e4cb-0cc5-7140-87a6-98b6fd11ad75"
            found = await result(peer, "account/login/cancel", {"loginId": id_})
            error = await refusal(peer, "account/login/cancel", {"loginId": "x"})

        assert found == {"status": "notFound"}
        assert (error["code"], error["message"]) == (-32600, "invalid login id: x")


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("account/rateLimits/read", "rate limits"),
        ("account/usage/read", "token usage"),
        ("account/workspaceMessages/read", "workspace messages"),
    ],
)
async def test_requests_about_a_plan_are_refused_with_the_texts_of_the_reference(
    home: Path, method: str, what: str
) -> None:
    settings = configuration(home, OPENAI)
    async with serving(settings) as peer:
        without = await refusal(peer, method, {})
        settings.credentials.sign_in("sk-1")
        with_key = await refusal(peer, method, {})

    assert without["message"] == f"codex account authentication required to read {what}"
    assert with_key["message"] == f"chatgpt authentication required to read {what}"


async def test_no_warning_about_bedrock(home: Path) -> None:
    async with serving(configuration(home)) as peer:
        answer = await result(peer, "account/bedrock/checkGovCloudRequirements", {})

    assert answer == {"isGovCloud": False, "shouldWarn": False}


async def test_older_clients_ask_for_the_status(home: Path) -> None:
    """Upstream's answers, with and without a required login."""
    settings = configuration(home, OPENAI)
    settings.credentials.sign_in("sk-1")
    async with serving(settings) as peer:
        with_token = await result(peer, "getAuthStatus", {"includeToken": True})
        without = await result(peer, "getAuthStatus", {})
        (home / "config.toml").write_text('model_provider = "scripted"', "utf-8")
        not_needed = await result(peer, "getAuthStatus", {"includeToken": True})

    assert with_token == {
        "authMethod": "apikey",
        "authToken": "sk-1",
        "requiresOpenaiAuth": True,
    }
    assert without == {"authMethod": "apikey", "authToken": None, "requiresOpenaiAuth": True}
    assert not_needed == {"authMethod": None, "authToken": None, "requiresOpenaiAuth": False}


class TestCredentials:
    async def test_a_login_overrides_the_environment(self, home: Path) -> None:
        credentials = CredentialStore(home, ENVIRON)
        credentials.sign_in("logged-in")

        login = await credentials.login()
        assert login is not None
        assert login.token == "logged-in"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[]",
            "{",
            '{"OPENAI_API_KEY": null, "tokens": {"access_token": "x"}}',
            '{"OPENAI_API_KEY": ""}',
            '{"OPENAI_API_KEY": 5}',
        ],
    )
    def test_a_file_without_a_usable_key_is_not_a_login(self, home: Path, text: str) -> None:
        (home / "auth.json").write_text(text, "utf-8")

        assert CredentialStore(home, {}).api_key is None

    def test_a_key_is_not_shown_by_accident(self, home: Path) -> None:
        credentials = CredentialStore(home, ENVIRON)
        credentials.sign_in("logged-in")

        assert repr(credentials) == "Credentials(...)"
