"""The thread methods: upstream's steps, with its error texts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness.threads import UNKNOWN_THREAD, Stage, keys, outline, params_of, text_input, words
from treadle.protocol.base import JsonValue

NO_ROLLOUT = f"no rollout found for thread id {UNKNOWN_THREAD}"
NOT_FOUND = f"thread not found: {UNKNOWN_THREAD}"
NOT_LOADED = f"thread not loaded: {UNKNOWN_THREAD}"
UNKNOWN: list[tuple[str, JsonValue, str]] = [
    ("thread/read", {}, NOT_LOADED),
    ("thread/turns/list", {}, NOT_LOADED),
    ("turn/start", {"input": [text_input("x")]}, NOT_FOUND),
    ("turn/interrupt", {"turnId": "x"}, NOT_FOUND),
    ("turn/steer", {"input": [text_input("x")], "expectedTurnId": "x"}, NOT_FOUND),
    ("turn/settings/update", {"turnId": "x"}, NOT_FOUND),
    ("thread/compact/start", {}, NOT_FOUND),
    ("thread/rollback", {"numTurns": 1}, NOT_FOUND),
    ("thread/revert", {"beforeTurnId": "x"}, NOT_FOUND),
    ("thread/settings/update", {"model": "x"}, NOT_FOUND),
    ("thread/inject_items", {"items": []}, NOT_FOUND),
    ("thread/goal/set", {"objective": "x"}, NOT_FOUND),
    ("thread/goal/get", {}, NOT_FOUND),
    ("thread/goal/clear", {}, NOT_FOUND),
    ("thread/resume", {}, NO_ROLLOUT),
    ("thread/fork", {}, NO_ROLLOUT),
    ("thread/archive", {}, NO_ROLLOUT),
    ("thread/delete", {}, NO_ROLLOUT),
    ("thread/name/set", {"name": "n"}, NO_ROLLOUT),
    ("thread/metadata/update", {"gitInfo": {"branch": "b"}}, NO_ROLLOUT),
    ("thread/unarchive", {}, f"no archived rollout found for thread id {UNKNOWN_THREAD}"),
]


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def is_there(path: str) -> bool:
    """Whether a file is on the disk."""
    return Path(path).is_file()


@pytest.mark.parametrize(("method", "params", "text"), UNKNOWN, ids=[each[0] for each in UNKNOWN])
async def test_an_unknown_thread_is_rejected_with_upstreams_text(
    stage: Stage, method: str, params: JsonValue, text: str
) -> None:
    client = await stage.client()

    unknown = await client.refusal(method, {"threadId": UNKNOWN_THREAD, **params})
    no_id = await client.refusal(method, {"threadId": "thr_1", **params})

    assert (unknown.code, unknown.message, unknown.kind) == (-32600, text, "threadNotFound")
    assert no_id.message == "invalid thread id: 'thr_1' is not a UUID"
    assert (no_id.code, no_id.kind) == (-32600, "invalidParams")


async def test_a_new_thread_exists_at_once(stage: Stage) -> None:
    """Upstream 0.163 stores it at once but lists it after its first message only."""
    client = await stage.client()
    answer = await client.request("thread/start", {"cwd": str(stage.workspace)})
    (notification,) = await client.until("thread/started")
    thread = answer["thread"]
    id_ = {"threadId": thread["id"]}

    assert notification["params"]["thread"] == thread
    assert is_there(thread["path"])
    assert thread == (await client.request("thread/read", id_))["thread"]
    assert (await client.read(thread["id"]))["turns"] == []
    assert (thread["preview"], thread["status"]) == ("", {"type": "idle"})
    assert (thread["originator"], thread["source"]) == ("probe", "vscode")
    here = {
        "environmentId": "local",
        "cwd": thread["cwd"],
        "runtimeWorkspaceRoots": [thread["cwd"]],
    }
    assert thread["environments"] == [here]
    resumed = (await client.request("thread/resume", id_))["thread"]
    assert resumed == thread
    forked = (await client.request("thread/fork", id_))["thread"]
    assert (forked["forkedFromId"], forked["turns"]) == (thread["id"], [])
    assert await client.request("thread/archive", id_) == {}


async def test_thread_start_answers_with_the_settings_in_force(stage: Stage) -> None:
    client = await stage.client()
    answer = await client.request("thread/start", {"cwd": str(stage.workspace)})
    answer.pop("thread")

    assert answer == {
        "model": "mock-model",
        "modelProvider": "mock_provider",
        "serviceTier": None,
        "disabledPluginIds": [],
        "cwd": str(stage.workspace),
        "runtimeWorkspaceRoots": [str(stage.workspace)],
        "instructionSources": [],
        "approvalPolicy": "never",
        "approvalsReviewer": "user",
        "sandbox": {"type": "readOnly", "networkAccess": False},
        "activePermissionProfile": None,
        "reasoningEffort": None,
        "multiAgentMode": "explicitRequestOnly",
    }


async def test_a_name_is_published_and_stored(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()

    assert (
        await client.request("thread/name/set", {"threadId": thread_id, "name": " My name "}) == {}
    )
    (notification,) = await client.until("thread/name/updated")
    blank = await client.refusal("thread/name/set", {"threadId": thread_id, "name": "  "})
    await client.run(thread_id)

    assert notification["params"] == {"threadId": thread_id, "threadName": "My name"}
    assert blank.message == "thread name must not be empty"
    listed = (await client.request("thread/list", {}))["data"]
    assert [thread["name"] for thread in listed] == ["My name"]
    await stage.restart()
    assert (await (await stage.client()).read(thread_id))["name"] == "My name"


async def test_git_facts_are_read_from_the_folder_and_can_be_patched(stage: Stage) -> None:
    """Upstream: what is absent stays, what is null goes."""
    git(stage.workspace, "init", "-q", "-b", "main")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    git(stage.workspace, *who, "commit", "-q", "--allow-empty", "-m", "x")
    git(stage.workspace, "remote", "add", "origin", "https://example.com/x.git")
    sha = git(stage.workspace, "rev-parse", "HEAD")
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    found = {"sha": sha, "branch": "main", "originUrl": "https://example.com/x.git"}

    async def update(**params: JsonValue) -> JsonValue:
        answer = await client.request("thread/metadata/update", {"threadId": thread_id, **params})
        return answer["thread"]["gitInfo"]

    assert (await client.read(thread_id))["gitInfo"] == found
    assert await update(gitInfo={"branch": "feature/x"}) == {**found, "branch": "feature/x"}
    assert await update(gitInfo={"sha": None, "originUrl": None}) == {
        "sha": None,
        "branch": "feature/x",
        "originUrl": None,
    }
    assert await update(gitInfo={"branch": None}) is None


async def test_an_empty_metadata_update_is_rejected(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()

    async def refusal(**params: JsonValue) -> str:
        asked = {"threadId": thread_id, **params}
        return (await client.refusal("thread/metadata/update", asked)).message

    assert await refusal() == "thread metadata update must include at least one field"
    assert await refusal(gitInfo={}) == "gitInfo must include at least one field"
    assert await refusal(gitInfo={"sha": " "}) == "gitInfo.sha must not be empty"
    assert await refusal(projectId="p") == "project not found: p"


async def test_a_refused_archive_leaves_an_ephemeral_thread_as_it_is(stage: Stage) -> None:
    """Upstream: such a thread has no file to move; its conversation continues."""
    client = await stage.client()
    thread_id = await client.start(ephemeral=True)
    await client.run(thread_id, "remember 42")
    for method in ("thread/archive", "thread/unarchive"):
        refused = await client.refusal(method, {"threadId": thread_id})
        assert "rollout found" in refused.message
    await client.run(thread_id, "what was it?")

    said = [text for role, text in stage.model.requests[-1].conversation() if role == "user"]
    assert said == ["remember 42", "what was it?"]


async def test_an_archive_that_cannot_be_stored_leaves_the_thread_loaded(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "one")
    (stage.home / "archived_sessions").write_text("not a folder")
    await client.refusal("thread/archive", {"threadId": thread_id})
    await client.run(thread_id, "two")

    assert words(await client.read(thread_id)) == [["one", "done"], ["two", "done"]]


async def test_an_archived_thread_is_hidden_and_can_be_unarchived(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    await client.run(thread_id, "keep me")
    id_ = {"threadId": thread_id}

    assert await client.request("thread/archive", id_) == {}
    messages = await client.until("thread/archived")
    assert outline(messages) == ["thread/status/changed notLoaded", "thread/archived"]
    again = await client.refusal("thread/archive", id_)
    resume = await client.refusal("thread/resume", id_)
    archived = (await client.request("thread/list", {"archived": True}))["data"]
    read = (await client.request("thread/read", id_))["thread"]
    assert again.message == f"no rollout found for thread id {thread_id}"
    assert resume.message.startswith(f"session {thread_id} is archived.")
    assert resume.kind == "threadArchived"
    assert [(thread["id"], thread["preview"]) for thread in archived] == [(thread_id, "keep me")]
    assert (await client.request("thread/list", {}))["data"] == []
    assert (read["status"], "archived_sessions" in read["path"]) == ({"type": "notLoaded"}, True)

    back = (await client.request("thread/unarchive", id_))["thread"]
    await client.until("thread/unarchived")
    twice = await client.refusal("thread/unarchive", id_)
    assert (back["id"], back["status"]) == (thread_id, {"type": "notLoaded"})
    assert twice.message == f"no archived rollout found for thread id {thread_id}"
    await client.request("thread/resume", id_)
    assert words(await client.read(thread_id)) == [["keep me", "done"]]


async def test_a_deleted_thread_is_gone(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    path = (await client.read(thread_id))["path"]

    await client.request("thread/delete", {"threadId": thread_id})
    messages = await client.until("thread/deleted")

    assert outline(messages) == ["thread/status/changed notLoaded", "thread/deleted"]
    assert not is_there(path)
    await client.refusal("thread/read", {"threadId": thread_id})


async def test_the_last_subscriber_that_leaves_unloads_the_thread(stage: Stage) -> None:
    """Upstream 0.118; 0.163 keeps it for a while."""
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start()
    await other.request("thread/resume", {"threadId": thread_id})

    async def leave() -> list[str]:
        answers = [
            await each.request("thread/unsubscribe", {"threadId": thread_id})
            for each in (client, client, other)
        ]
        return [answer["status"] for answer in answers]

    assert await leave() == ["unsubscribed", "notSubscribed", "unsubscribed"]
    messages = await client.until("thread/closed")
    assert outline(messages)[-2:] == ["thread/status/changed notLoaded", "thread/closed"]
    assert (await client.request("thread/loaded/list", {}))["data"] == []
    after = await client.request("thread/unsubscribe", {"threadId": thread_id})
    assert after == {"status": "notLoaded"}


async def test_an_ephemeral_thread_leaves_nothing_behind(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start(ephemeral=True)
    await client.run(thread_id, "secret")
    thread = await client.read(thread_id)

    assert (thread["ephemeral"], thread["path"]) == (True, None)
    assert words(thread) == [["secret", "done"]]
    assert (await client.request("thread/list", {}))["data"] == []
    assert not list(stage.home.rglob("rollout-*"))
    kept = (await client.request("thread/fork", {"threadId": thread_id}))["thread"]
    assert words(kept) == [["secret", "done"]]
    await client.run(kept["id"], "go on")
    assert [text for _, text in stage.model.requests[-1].conversation()] == [
        "secret",
        "done",
        "go on",
    ]


async def test_lists_and_reads_agree_on_the_folder_after_a_turn_changed_it(stage: Stage) -> None:
    """The folder of a session is the one of its last turn, loaded or not."""
    client = await stage.client()
    before, after = str(stage.workspace), str(stage.home)
    thread_id = await client.start(cwd=before)
    await client.run(thread_id)

    async def folders() -> list[JsonValue]:
        found = [
            [each["cwd"] for each in (await client.request("thread/list", {"cwd": cwd}))["data"]]
            for cwd in (before, after)
        ]
        plain = await client.request("thread/read", {"threadId": thread_id})
        return [*found, plain["thread"]["cwd"], (await client.read(thread_id))["cwd"]]

    async def all_folders() -> list[JsonValue]:
        nonlocal client
        loaded = await folders()
        await stage.close()
        for part in stage.home.glob("treadle.sqlite*"):
            part.unlink()
        await stage.restart()
        client = await stage.client()
        stored = await folders()
        await client.request("thread/resume", {"threadId": thread_id})
        return [loaded, stored, await folders()]

    assert await all_folders() == [[[before], [], before, before]] * 3
    await client.run(thread_id, cwd=after)
    assert await all_folders() == [[[], [after], after, after]] * 3
    await client.request("thread/settings/update", {"threadId": thread_id, "cwd": before})
    assert await all_folders() == [[[before], [], before, before]] * 3
    await client.request("thread/unsubscribe", {"threadId": thread_id})
    await client.request("thread/resume", {"threadId": thread_id, "cwd": after})
    await client.run(thread_id)
    assert await all_folders() == [[[], [after], after, after]] * 3


async def test_threads_are_listed_in_pages_in_either_order(stage: Stage) -> None:
    client = await stage.client()
    ids = [await client.start(cwd=str(stage.workspace)) for _ in range(3)]
    for number, id_ in enumerate(ids):
        await client.run(id_, f"thread number {number}")

    async def listed(**params: JsonValue) -> list[str]:
        return [each["id"] for each in (await client.request("thread/list", params))["data"]]

    first = await client.request("thread/list", {"limit": 2})
    second = await client.request("thread/list", {"limit": 2, "cursor": first["nextCursor"]})
    paged = [each["id"] for page in (first, second) for each in page["data"]]
    assert paged == ids[::-1]
    assert second["nextCursor"] is None
    assert await listed(sortDirection="asc") == ids
    assert await listed(limit=0) == ids[-1:]
    assert await listed(sortKey="updated_at", limit=1) == ids[-1:]
    assert await listed(searchTerm="number 1") == ids[1:2]
    assert await listed(searchTerm="NUMBER 1") == []  # upstream: the case counts
    assert await listed(searchTerm="nu") == ids[::-1]
    assert await listed(searchTerm="NU") == []
    assert await listed(sourceKinds=["exec"]) == []
    assert await listed(modelProviders=["other"]) == []
    assert await listed(cwd="/nowhere") == []
    assert await listed(cwd=["/nowhere", str(stage.workspace)]) == ids[::-1]
    bad = await client.refusal("thread/list", {"cursor": "garbage"})
    assert (bad.message, bad.kind) == ("invalid cursor: garbage", "invalidCursor")
    loaded = await client.request("thread/loaded/list", {"limit": 2})
    assert loaded == {"data": ids[:2], "nextCursor": ids[1]}
    rest = await client.request("thread/loaded/list", {"cursor": ids[1]})
    assert rest == {"data": ids[2:], "nextCursor": None}


async def test_items_can_be_injected_into_what_the_model_sees(stage: Stage) -> None:
    client = await stage.client()
    thread_id = await client.start()
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "psst"}]}

    empty = await client.refusal("thread/inject_items", {"threadId": thread_id, "items": []})
    await client.request("thread/inject_items", {"threadId": thread_id, "items": [item]})
    await client.run(thread_id, "hi")

    assert empty.message == "items must not be empty"
    assert stage.model.requests[0].conversation() == [("user", "psst"), ("user", "hi")]
    assert words(await client.read(thread_id)) == [["hi", "done"]]


async def test_the_last_turns_can_be_dropped_by_number_or_by_name(stage: Stage) -> None:
    """Upstream 0.118 has `thread/rollback`, 0.163 `thread/revert`; here are both."""
    client = await stage.client()
    thread_id = await client.start()
    for text in ("one", "two", "three"):
        await client.run(thread_id, text)
    id_ = {"threadId": thread_id}

    none = await client.refusal("thread/rollback", {**id_, "numTurns": 0})
    left = (await client.request("thread/rollback", {**id_, "numTurns": 1}))["thread"]
    usage = await client.until("thread/tokenUsage/updated")
    assert none.message == "numTurns must be >= 1"
    assert words(left) == [["one", "done"], ["two", "done"]]
    assert usage[-1]["params"]["turnId"] == left["turns"][-1]["id"]

    second = left["turns"][1]["id"]
    unknown = await client.refusal("thread/revert", {**id_, "beforeTurnId": "nope"})
    answer = await client.request("thread/revert", {**id_, "beforeTurnId": second})
    await client.until("thread/reverted")
    assert (unknown.message, unknown.kind) == ("turn not found: nope", "turnNotFound")
    page = await client.request(
        "thread/turns/list", {**id_, "cursor": answer["turnsBackwardsCursor"]}
    )
    assert [turn["id"] for turn in page["data"]] == [left["turns"][0]["id"]]
    await client.run(thread_id, "four")
    assert [text for _, text in stage.model.requests[-1].conversation()] == ["one", "done", "four"]
    assert words(await client.read(thread_id)) == [["one", "done"], ["four", "done"]]
    await client.request("thread/rollback", {**id_, "numTurns": 99})
    assert (await client.read(thread_id))["turns"] == []


async def test_every_thread_has_the_same_keys_wherever_it_is_shown(stage: Stage) -> None:
    client = await stage.client()
    answer = await client.request("thread/start", {})
    started = params_of(await client.until("thread/started"), "thread/started")[0]["thread"]
    thread_id = answer["thread"]["id"]
    await client.run(thread_id)
    shown = [
        started,
        answer["thread"],
        (await client.request("thread/list", {}))["data"][0],
        (await client.request("thread/read", {"threadId": thread_id}))["thread"],
        (await client.request("thread/resume", {"threadId": thread_id, "excludeTurns": True}))[
            "thread"
        ],
    ]

    assert [keys(thread) for thread in shown] == [keys(shown[0])] * len(shown)
