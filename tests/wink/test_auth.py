"""Signing in with keys and tokens, and skills, without changes to the user's own files."""

from __future__ import annotations

from pathlib import Path

import jwt
import pytest

pytest.importorskip("weakincentives", reason="weakincentives needs Python 3.12.3 or newer")

from weakincentives.adapters import PromptEvaluationError
from weakincentives.runtime import Session
from weakincentives.skills import SkillMount

from tests.harness.model_server import ReceivedRequest, Reply, refuses, says
from tests.harness.processes import TREADLE
from tests.harness.threads import configure
from tests.wink.ground import Chosen, Ground, prompt
from treadle.protocol.base import JsonValue
from treadle.wink import (
    ApiKeyAuth,
    CodexAppServerClientConfig,
    CodexAppServerModelConfig,
    ExternalTokenAuth,
)

SIGNED_IN = "requires_openai_auth = true\n"


def tokens(name: str, **more: JsonValue) -> ExternalTokenAuth:
    """Return made-up tokens of an account."""
    claims = {
        "email": "a@example.com",
        "https://api.openai.com/auth": {
            "chatgpt_account_id": "account-1",
            "chatgpt_plan_type": "pro",
        },
    }
    made = jwt.encode({**claims, "name": name}, "a key that is long enough for its purpose")
    return ExternalTokenAuth(id_token=made, access_token=made, **more)


def sign_in_needed(ground: Ground, *replies: Reply) -> None:
    """Make the model accept the account's credentials; the reference also sends other requests."""
    left = list(replies)

    def choose(request: ReceivedRequest) -> Reply:
        return left.pop(0) if request.path.endswith("/responses") else refuses(404, {})

    ground.model.replies = Chosen(ground.model, choose)
    configure(ground.home, ground.model, f'chatgpt_base_url = "{ground.model.base_url}"')
    path = ground.home / "config.toml"
    path.write_text(path.read_text("utf-8") + SIGNED_IN, "utf-8")


def answered(ground: Ground) -> list[ReceivedRequest]:
    """Return the requests to the model."""
    return [each for each in ground.model.requests if each.path.endswith("/responses")]


async def test_an_api_key_is_used(ground: Ground) -> None:
    sign_in_needed(ground, says("Hello."))

    await ground.adapter(auth_mode=ApiKeyAuth("sk-secret")).evaluate_async(
        prompt(), session=Session()
    )

    (request,) = answered(ground)
    assert request.headers["authorization"] == "Bearer sk-secret"


async def test_an_api_key_is_not_stored(reference_ground: Ground) -> None:
    adapter = reference_ground.adapter(auth_mode=ApiKeyAuth("sk-secret"))

    await adapter.evaluate_async(prompt(), session=Session())

    assert not (reference_ground.home / "auth.json").exists()


async def test_an_api_key_is_not_stored_by_our_own_program(own_ground: Ground) -> None:
    sign_in_needed(own_ground, says("Hello."))
    adapter = own_ground.adapter(auth_mode=ApiKeyAuth("sk-secret"), codex_bin=TREADLE)

    await adapter.evaluate_async(prompt(), session=Session())

    (request,) = answered(own_ground)
    assert request.headers["authorization"] == "Bearer sk-secret"
    assert not (own_ground.home / "auth.json").exists()


async def test_tokens_are_used_and_renewed_when_they_are_refused(own_ground: Ground) -> None:
    ground = own_ground
    sign_in_needed(ground, refuses(401, {"error": {"message": "expired"}}), says("Hello."))
    reasons: list[str] = []
    new = tokens("new")

    def refresh(reason: str) -> ExternalTokenAuth:
        reasons.append(reason)
        return new

    old = tokens("old", refresh=refresh)
    await ground.adapter(auth_mode=old).evaluate_async(prompt(), session=Session())

    first, second = answered(ground)
    assert first.headers["authorization"] == f"Bearer {old.access_token}"
    assert second.headers["authorization"] == f"Bearer {new.access_token}"
    assert {each.headers["chatgpt-account-id"] for each in (first, second)} == {"account-1"}
    assert reasons == ["unauthorized"]


async def test_tokens_are_renewed_for_the_reference(reference_ground: Ground) -> None:
    """The reference then looks up the account at its vendor, which is not reachable here.

    Its turn fails, but only after it has accepted the new tokens.
    """
    ground = reference_ground
    sign_in_needed(ground, refuses(401, {"error": {"message": "expired"}}))
    reasons: list[str] = []

    def refresh(reason: str) -> ExternalTokenAuth:
        reasons.append(reason)
        return tokens("new")

    old = tokens("old", refresh=refresh)
    with pytest.raises(PromptEvaluationError, match="network policy is unavailable"):
        await ground.adapter(auth_mode=old).evaluate_async(prompt(), session=Session())

    (request,) = answered(ground)
    assert request.headers["authorization"] == f"Bearer {old.access_token}"
    assert request.headers["chatgpt-account-id"] == "account-1"
    assert reasons == ["unauthorized"]


async def test_tokens_without_a_renewal_fail_the_turn(ground: Ground) -> None:
    sign_in_needed(ground, *[refuses(401, {"error": {"message": "expired"}})] * 3)

    with pytest.raises(PromptEvaluationError, match="auth refresh request failed") as failed:
        await ground.adapter(auth_mode=tokens("old")).evaluate_async(prompt(), session=Session())

    assert failed.value.provider_payload is not None


async def test_skills_are_added_to_the_users_own_home(ground: Ground, tmp_path: Path) -> None:
    skill = tmp_path / "secret-word"
    skill.mkdir()
    about = "---\nname: secret-word\ndescription: Knows the secret word.\n---\nIt is phoenix.\n"
    (skill / "SKILL.md").write_text(about, "utf-8")
    adapter = ground.adapter()

    mounted = prompt("Say it.", skills=(SkillMount(source=skill),))
    await adapter.evaluate_async(mounted, session=Session())
    await adapter.evaluate_async(prompt("And now?"), session=Session())

    with_skill, without = (str(request.body["input"]) for request in ground.model.requests)
    assert "Knows the secret word." in with_skill
    assert "Knows the secret word." not in without


async def test_a_missing_skill_fails_in_the_request_phase(own_ground: Ground) -> None:
    mounted = prompt("Say it.", skills=(SkillMount(source=Path("/nowhere/skill")),))

    with pytest.raises(PromptEvaluationError, match="Skill not found") as failed:
        await own_ground.adapter().evaluate_async(mounted, session=Session())

    assert failed.value.phase == "request"


def test_secrets_are_not_shown_in_the_repr_of_a_configuration() -> None:
    assert "sk-secret" not in repr(CodexAppServerClientConfig(auth_mode=ApiKeyAuth("sk-secret")))
    assert tokens("x").access_token not in repr(tokens("x"))


def test_options_without_a_protocol_field_are_refused() -> None:
    unsupported: JsonValue = {"seed": 1, "stop": ["x"]}

    with pytest.raises(ValueError, match="does not support seed, stop"):
        CodexAppServerModelConfig(**unsupported)
    with pytest.raises(ValueError, match="cwd must be absolute"):
        CodexAppServerClientConfig(cwd="somewhere")
