"""`fuzzyFileSearch` and its sessions: updates, ends, and input that cannot be searched for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Event

import pytest

from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client
from tests.server.file_search.corpus import plant
from treadle.protocol.base import JsonValue
from treadle.server.file_search import walk
from treadle.server.handlers.fuzzy_file_search import MAX_QUERY, MAX_SESSIONS
from treadle.server.server import Server

UPDATED = "fuzzyFileSearch/sessionUpdated"
COMPLETED = "fuzzyFileSearch/sessionCompleted"


@pytest.fixture
async def server(home: Path) -> AsyncIterator[Server]:
    async with playing(home, []) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with client_of(server) as client:
        yield client


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    plant(root, ["src/app.py", "src/main.py", "docs/app.md", "empty/"])
    return root


async def search(client: Client, query: str, *roots: Path, **params: JsonValue) -> list[str]:
    params = {"query": query, "roots": [str(root) for root in roots], **params}
    return paths(await client.request("fuzzyFileSearch", params))


def paths(found: JsonValue) -> list[str]:
    return [file["path"] for file in found["files"]]


async def start(client: Client, root: Path, session_id: str = "s") -> None:
    params = {"sessionId": session_id, "roots": [str(root)]}
    assert await client.request("fuzzyFileSearch/sessionStart", params) == {}


async def update(client: Client, query: str, session_id: str = "s") -> JsonValue:
    """Change the query of a session, and return the matches when they are complete."""
    params = {"sessionId": session_id, "query": query}
    assert await client.request("fuzzyFileSearch/sessionUpdate", params) == {}
    await client.until(UPDATED, lambda params: params["query"] == query)
    found = client.received[-1]["params"]
    messages = await client.until(COMPLETED, lambda params: params == {"sessionId": session_id})
    updates = [message["params"] for message in messages if message.get("method") == UPDATED]
    return updates[-1] if updates else found


class HeldWalk:
    """Lets a walk begin, and holds it in the first folder until the test releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = Event()
        self.may_go_on = Event()
        scan = walk.scan

        def held(folder: str) -> list[os.DirEntry[str]]:
            if self.begun.is_set():
                self.may_go_on.wait()
            self.begun.set()
            return scan(folder)

        monkeypatch.setattr(walk, "scan", held)


@pytest.fixture
def held_walk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldWalk]:
    held = HeldWalk(monkeypatch)
    yield held
    held.may_go_on.set()


async def test_the_best_matches_come_first(client: Client, root: Path) -> None:
    assert await search(client, "app", root) == ["docs/app.md", "src/app.py"]
    assert await search(client, "apppy", root) == ["src/app.py"]
    assert await search(client, "nothing", root) == []
    assert await search(client, "", root) == []


async def test_a_file_below_two_roots_is_found_once(client: Client, root: Path) -> None:
    files = await client.request(
        "fuzzyFileSearch", {"query": "main", "roots": [str(root), f"{root}/src"]}
    )
    assert [(file["root"], file["path"]) for file in files["files"]] == [(f"{root}/src", "main.py")]


async def test_folders_that_cannot_be_read_are_empty(client: Client, root: Path) -> None:
    (root / "long").mkdir()
    (root / "long" / ".gitignore").mkdir()
    os.mkfifo(root / ".ignore")

    found = await search(client, "app", root / "missing", root / "src/app.py", root)

    assert found == ["docs/app.md", "src/app.py"]


async def test_names_that_are_no_text_are_left_out(client: Client, root: Path) -> None:
    os.close(os.open(os.fsencode(root) + b"/app\xff", os.O_CREAT))

    assert await search(client, "app", root) == ["docs/app.md", "src/app.py"]


async def test_links_are_followed_but_not_in_circles(client: Client, root: Path) -> None:
    (root / "docs/up").symlink_to("..")
    (root / "empty/code").symlink_to("../src")

    assert await search(client, "main", root) == ["empty/code/main.py", "src/main.py"]


async def test_a_later_search_with_the_same_token_cancels_the_former(
    server: Server, client: Client, root: Path, held_walk: HeldWalk
) -> None:
    params = {"query": "app", "roots": [str(root)], "cancellationToken": "t"}
    await client.peer.send({"id": "former", "method": "fuzzyFileSearch", "params": params})
    await asyncio.to_thread(held_walk.begun.wait)
    await client.peer.send({"id": "later", "method": "fuzzyFileSearch", "params": params})
    await client.settled()
    held_walk.may_go_on.set()

    answers = [await client.peer.receive() for _ in range(2)]

    assert {answer["id"]: paths(answer["result"]) for answer in answers} == {
        "former": [],
        "later": ["docs/app.md", "src/app.py"],
    }


async def test_a_session_follows_its_query(client: Client, root: Path) -> None:
    await start(client, root)

    assert paths(await update(client, "app")) == ["docs/app.md", "src/app.py"]
    assert paths(await update(client, "apppy")) == ["src/app.py"]
    assert paths(await update(client, "")) == []
    assert paths(await update(client, "app")) == ["docs/app.md", "src/app.py"]


async def test_a_session_publishes_matches_while_it_walks(
    client: Client, root: Path, held_walk: HeldWalk
) -> None:
    plant(root, ["app.first"])
    await start(client, root)
    await client.request("fuzzyFileSearch/sessionUpdate", {"sessionId": "s", "query": "app"})

    early = (await client.until(UPDATED, lambda params: params["files"]))[-1]["params"]
    held_walk.may_go_on.set()
    messages = await client.until(COMPLETED)

    assert paths(early) == ["app.first"]
    assert paths(messages[-2]["params"]) == ["app.first", "docs/app.md", "src/app.py"]


async def test_a_session_skips_queries_that_are_not_wanted_any_more(
    client: Client, root: Path, held_walk: HeldWalk
) -> None:
    await start(client, root)
    for query in ("a", "ap", "app"):
        await client.request("fuzzyFileSearch/sessionUpdate", {"sessionId": "s", "query": query})
    held_walk.may_go_on.set()

    messages = await client.until(COMPLETED)

    assert paths(messages[-2]["params"]) == ["docs/app.md", "src/app.py"]


async def test_a_new_session_takes_the_place_of_one_with_the_same_id(
    client: Client, root: Path
) -> None:
    await start(client, root)
    await start(client, root / "docs")

    assert paths(await update(client, "app")) == ["app.md"]


async def test_a_stopped_session_is_over(client: Client, root: Path, held_walk: HeldWalk) -> None:
    await start(client, root)
    assert await client.request("fuzzyFileSearch/sessionStop", {"sessionId": "s"}) == {}
    held_walk.may_go_on.set()

    refused = await client.refusal(
        "fuzzyFileSearch/sessionUpdate", {"sessionId": "s", "query": "app"}
    )

    assert refused.message == "fuzzy file search session not found: s"
    assert await client.request("fuzzyFileSearch/sessionStop", {"sessionId": "s"}) == {}
    await start(client, root, "other")
    await update(client, "app", "other")
    sessions = [
        message["params"]["sessionId"] for message in client.received if "params" in message
    ]
    assert sessions.count("s") <= 1


async def test_sessions_belong_to_their_client(server: Server, client: Client, root: Path) -> None:
    await start(client, root)
    async with client_of(server) as other:
        params = {"sessionId": "s", "query": "app"}
        refused = await other.refusal("fuzzyFileSearch/sessionUpdate", params)

    assert "not found" in refused.message
    assert paths(await update(client, "app")) == ["docs/app.md", "src/app.py"]


async def test_a_client_that_leaves_ends_its_searches(
    server: Server, root: Path, held_walk: HeldWalk
) -> None:
    async with client_of(server) as client:
        await start(client, root)
        await asyncio.to_thread(held_walk.begun.wait)
        (session,) = server.sessions
        search = session.search_sessions["s"]

    assert search.is_over


async def test_a_client_has_a_limited_number_of_sessions(client: Client, root: Path) -> None:
    for number in range(MAX_SESSIONS):
        await start(client, root, str(number))

    params = {"sessionId": "more", "roots": [str(root)]}
    refused = await client.refusal("fuzzyFileSearch/sessionStart", params)

    assert refused.data["kind"] == "tooManySessions"
    await start(client, root, "0")


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("fuzzyFileSearch", {"query": "a" * (MAX_QUERY + 1), "roots": []}, "query"),
        ("fuzzyFileSearch", {"query": 5, "roots": []}, "query"),
        ("fuzzyFileSearch", {"query": "a", "roots": ["/", "a\0b"]}, "roots[1]"),
        ("fuzzyFileSearch", {"query": "a", "roots": "/"}, "roots"),
        ("fuzzyFileSearch", {"query": "a"}, "roots"),
        ("fuzzyFileSearch/sessionStart", {"sessionId": "", "roots": ["/"]}, "sessionId"),
        ("fuzzyFileSearch/sessionStart", {"sessionId": "s", "roots": []}, "roots"),
        ("fuzzyFileSearch/sessionStart", {"sessionId": "s", "roots": ["\0"]}, "roots[0]"),
        ("fuzzyFileSearch/sessionUpdate", {"sessionId": "s"}, "query"),
    ],
)
async def test_an_error_names_the_field(
    client: Client, method: str, params: JsonValue, field: str
) -> None:
    refused = await client.refusal(method, params)

    assert field in refused.message or refused.data["path"] == field


async def test_a_long_query_ends(client: Client, tmp_path: Path) -> None:
    """A path of 4,000 times the same letter has as many alignments as a query has characters."""
    root = tmp_path
    for _ in range(15):
        root /= "a" * 250
    root.mkdir(parents=True)

    assert await search(client, "a" * 3700, tmp_path) == [str(root.relative_to(tmp_path))]
