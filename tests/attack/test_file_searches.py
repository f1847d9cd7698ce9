"""A search for files takes bounded memory and time, whatever a repository or a client chooses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client
from tests.server.file_search.corpus import plant
from treadle.protocol.base import JsonValue
from treadle.server.file_search import found, ignore_rules, walk
from treadle.server.file_search.ignore_rules import IgnoreRules
from treadle.server.folder_limits import MAX_FOLDERS, MAX_PATH_BYTES
from treadle.server.handlers.fuzzy_file_search import MAX_WORDS
from treadle.server.query_limits import MAX_TERM_CHARACTERS

SECONDS = 20
COMPLETED = "fuzzyFileSearch/sessionCompleted"
START, UPDATE = "fuzzyFileSearch/sessionStart", "fuzzyFileSearch/sessionUpdate"


@pytest.fixture
async def client(home: Path) -> AsyncIterator[Client]:
    async with playing(home, []) as server, client_of(server) as client:
        yield client


async def found_in_session(client: Client, session_id: str, root: Path) -> int:
    """Start a session, and return how many files match when it has found all."""
    await client.request(START, {"sessionId": session_id, "roots": [str(root)]})
    await client.request(UPDATE, {"sessionId": session_id, "query": "file"})
    messages = await client.until(
        "fuzzyFileSearch/sessionUpdated", lambda params: params["query"] == "file"
    )
    messages += await client.until(COMPLETED, lambda params: params["sessionId"] == session_id)
    updates = [each["params"] for each in messages if "files" in each.get("params", {})]
    return len(updates[-1]["files"])


async def test_folders_that_links_multiply_end_the_search_at_its_limit(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no message can name did not count, so the search never ended."""
    monkeypatch.setattr(walk, "MAX_EXAMINED", 500)
    names = [b"\xff%d" % number for number in range(20)]
    for name in names:
        folder = os.path.join(os.fsencode(tmp_path), name)  # noqa: PTH118 - not UTF-8
        os.mkdir(folder)  # noqa: PTH102
        for other in names:
            if other != name:
                os.symlink(b"../" + other, folder + b"/" + other)  # noqa: PTH211
    async with asyncio.timeout(SECONDS):
        answer = await client.request("fuzzyFileSearch", {"query": "a", "roots": [str(tmp_path)]})
    assert answer == {"files": []}


async def test_processor_time_ends_the_search(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, ["a/file", "b/file"])
    monkeypatch.setattr(walk, "MAX_SECONDS", -1.0)
    answer = await client.request("fuzzyFileSearch", {"query": "file", "roots": [str(tmp_path)]})
    assert answer == {"files": []}


def test_patterns_are_compared_in_parts_between_which_others_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All patterns in one comparison took five seconds, in which no other thread ran."""
    paused: list[None] = []
    lines = [f"**/*{'[a]' * 150}b{number}" for number in range(200)]
    rules = IgnoreRules("\n".join(lines))
    monkeypatch.setattr(ignore_rules, "give_way", lambda: paused.append(None))

    path = f"{'a' * 250}/" * 15 + "x"
    assert rules.judge(path, "x", is_folder=False) is None
    assert len(paused) == len(lines)
    paused.clear()
    assert rules.judge("a/x", "x", is_folder=False) is None
    assert len(paused) >= rules.size // 2048


def test_long_patterns_have_no_effect() -> None:
    limit = ignore_rules.MAX_CHARACTERS
    assert not IgnoreRules("a*" * limit)
    assert IgnoreRules("a" * limit).judge("a" * limit, "a" * limit, is_folder=False) is True


async def test_patterns_of_many_folders_have_one_limit(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patterns of each folder on the way down are kept."""
    monkeypatch.setattr(walk, "MAX_RULES", 10)
    plant(tmp_path, ["a/b/hidden", "a/b/file"])
    (tmp_path / ".ignore").write_text("nothing")
    (tmp_path / "a" / ".ignore").write_text("hidden")
    params: JsonValue = {"query": "hidden", "roots": [str(tmp_path)]}
    assert len((await client.request("fuzzyFileSearch", params))["files"]) == 1
    (tmp_path / ".ignore").unlink()
    assert await client.request("fuzzyFileSearch", params) == {"files": []}


async def test_a_large_folder_is_not_listed_to_its_end(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "MAX_LISTED", 3)
    plant(tmp_path, [f"file{number}" for number in range(10)])
    (tmp_path / ".ignore").write_text("file*")
    params: JsonValue = {"query": "file", "roots": [str(tmp_path)]}
    assert await client.request("fuzzyFileSearch", params) == {"files": []}
    (tmp_path / ".ignore").unlink()
    assert len((await client.request("fuzzyFileSearch", params))["files"]) == 3


async def test_the_searches_of_a_client_share_the_room_for_what_they_found(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session kept up to a million paths of any length."""
    monkeypatch.setattr(found, "MAX_ENTRIES", 1000)
    plant(tmp_path, ["file"])
    async with asyncio.timeout(SECONDS):
        assert await found_in_session(client, "first", tmp_path) == 1
        assert await found_in_session(client, "second", tmp_path) == 0
        params: JsonValue = {"query": "file", "roots": [str(tmp_path)]}
        assert await client.request("fuzzyFileSearch", params) == {"files": []}
        await client.request("fuzzyFileSearch/sessionStop", {"sessionId": "first"})
        assert await found_in_session(client, "third", tmp_path) == 1


LONG = "x" * (MAX_TERM_CHARACTERS + 1)
LONG_ROOT = "/" * MAX_PATH_BYTES + "x"


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        (START, {"roots": [LONG_ROOT]}, "roots[0] must have at most 4095 bytes, not 4096"),
        (START, {"roots": ["/"] * (MAX_FOLDERS + 1)}, "roots must have at most 100 entries"),
        (START, {"sessionId": LONG}, "sessionId must have at most 4096 characters, not 4097"),
        ("fuzzyFileSearch", {"roots": [LONG_ROOT]}, "roots[0] must have at most 4095 bytes"),
        ("fuzzyFileSearch", {"cancellationToken": LONG}, "cancellationToken must have at most"),
        (
            "fuzzyFileSearch",
            {"query": "a " * (MAX_WORDS + 1)},
            "query must have at most 100 words, not 101",
        ),
    ],
)
async def test_what_a_search_repeats_or_keeps_is_short(
    client: Client, method: str, params: JsonValue, message: str
) -> None:
    """A root of 8 MB was in each of 50 matches of an answer."""
    refused = await client.refusal(
        method, {"sessionId": "s", "query": "a", "roots": ["/nowhere"], **params}
    )
    assert refused.message.startswith(message)
