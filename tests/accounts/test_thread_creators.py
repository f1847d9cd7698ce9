"""`currentAccountOnly`: which login started a thread, and which lists show it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.accounts.ground import Ground
from tests.harness.account_service import jwt
from treadle.protocol.base import JsonValue

ONLY = {"currentAccountOnly": True}


def login(ground: Ground, user: str, account: str) -> None:
    """Store a login of this user in this workspace."""
    document = ground.service.auth_json()
    auth = {
        "chatgpt_user_id": user,
        "chatgpt_account_id": account,
        "chatgpt_plan_type": "pro",
    }
    document["tokens"]["id_token"] = jwt({"https://api.openai.com/auth": auth})
    document["tokens"]["account_id"] = account
    ground.store(document)


async def spoken(ground: Ground, text: str) -> str:
    """Run a turn in a new thread of a new server."""
    client = await ground.client()
    thread_id = await client.start()
    await client.run(thread_id, text)
    return thread_id


async def shown(ground: Ground, **more: JsonValue) -> list[str]:
    """The previews of the current account's threads, oldest first, in a list and a search."""
    client = await ground.client()
    params = {**ONLY, "sortDirection": "asc", **more}
    listed = await client.request("thread/list", params)
    found = await client.request("thread/search", {**params, "searchTerm": "word"})
    texts = [thread["preview"] for thread in listed["data"]]
    assert [result["thread"]["preview"] for result in found["data"]] == texts
    return texts


async def test_threads_are_those_of_the_user_and_the_workspace(ground: Ground) -> None:
    """Upstream 0.169.0; threads without an account belong to every login."""
    await spoken(ground, "word none")
    for user, account in (("u1", "A"), ("u2", "A"), ("u1", "B")):
        login(ground, user, account)
        await spoken(ground, f"word {user} {account}")

    assert await shown(ground) == ["word none", "word u1 B"]
    login(ground, "u2", "A")
    assert await shown(ground) == ["word none", "word u2 A"]
    ground.file.unlink()
    assert await shown(ground) == ["word none"]
    ground.store({"auth_mode": "apikey", "OPENAI_API_KEY": "sk-1"})
    everything = ["word none", "word u1 A", "word u2 A", "word u1 B"]
    assert await shown(ground) == everything
    login(ground, "u2", "A")
    assert await shown(ground, currentAccountOnly=False) == everything


async def test_the_login_is_in_the_rollout_and_a_new_index_knows_it(ground: Ground) -> None:
    """Upstream: the names in the first line; a fork belongs to the login that makes it."""
    await spoken(ground, "word none")
    login(ground, "u1", "A")
    source = await spoken(ground, "word one")
    login(ground, "u2", "A")
    client = await ground.client()
    fork = await client.request("thread/fork", {"threadId": source})
    await client.run(fork["thread"]["id"], "more")

    firsts = [first_line(path) for path in sorted(ground.home.rglob("rollout-*.jsonl"))]
    assert [
        (first.get("creator_user_id"), first.get("creator_account_id")) for first in firsts
    ] == [(None, None), ("u1", "A"), ("u2", "A")]
    for path in ground.home.glob("treadle.sqlite*"):
        path.unlink()
    assert await shown(ground) == ["word none", "word one"]
    assert (await client.request("thread/list", ONLY))["data"][0]["id"] == fork["thread"]["id"]


def first_line(path: Path) -> JsonValue:
    return json.loads(path.read_text("utf-8").splitlines()[0])["payload"]


async def test_pages_have_only_threads_of_the_account(ground: Ground) -> None:
    for number in range(3):
        login(ground, f"u{number % 2}", "A")
        await spoken(ground, f"word {number}")
    login(ground, "u0", "A")
    client = await ground.client()

    first = await client.request("thread/list", {**ONLY, "limit": 1})
    second = await client.request(
        "thread/list", {**ONLY, "limit": 1, "cursor": first["nextCursor"]}
    )

    pages = [thread["preview"] for page in (first, second) for thread in page["data"]]
    assert pages == ["word 2", "word 0"]
    assert second["nextCursor"] is None


@pytest.mark.parametrize("method", ["thread/list", "thread/search"])
async def test_the_switch_is_true_or_false(ground: Ground, method: str) -> None:
    client = await ground.client()
    refused = await client.refusal(method, {"currentAccountOnly": "yes", "searchTerm": "x"})
    assert "currentAccountOnly" in refused.message
