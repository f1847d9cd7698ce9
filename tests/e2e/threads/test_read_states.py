"""How far the user has read a thread: `readState` and `thread/readState/update`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.model_server import Reply, calls, completed, created, fails, says
from tests.harness.threads import Client, Stage, params_of
from treadle.protocol.base import JsonValue

UPDATE, CHANGED = "thread/readState/update", "thread/readState/changed"
START: JsonValue = {"type": "threadStart"}
MISSING = "0199c3a0-0000-7000-8000-000000000001"


def turn(turn_id: str) -> JsonValue:
    """The position of a turn."""
    return {"type": "turn", "turnId": turn_id}


async def state_of(client: Client, thread_id: str) -> JsonValue:
    """The read state as every method returns it."""
    named = {"threadId": thread_id}
    brief = (await client.request("thread/read", named))["readState"]
    full = await client.request("thread/read", {**named, "includeTurns": True})
    listed = await client.request("thread/list", {})
    assert full["readState"] == brief
    assert listed["readStates"].get(thread_id) == brief
    return brief


async def mark(client: Client, thread_id: str, operation: str) -> JsonValue:
    """Mark a thread with its current revision; return the new state."""
    before = await state_of(client, thread_id)
    params = {"expectedRevision": before["revision"], "operation": {"type": operation}}
    answer = await client.request(UPDATE, {"threadId": thread_id, **params})
    assert answer["readState"]["revision"] != before["revision"]
    return answer["readState"]


def names_of(messages: list[JsonValue]) -> list[JsonValue]:
    """The methods of messages."""
    return [message.get("method") for message in messages]


async def ended(client: Client, thread_id: str) -> tuple[str, list[JsonValue]]:
    """Run a turn; return its id and all messages."""
    turn_id = await client.start_turn(thread_id)
    return turn_id, await client.end_of(turn_id)


async def test_a_turn_with_a_message_makes_a_thread_unread_from_there_on(stage: Stage) -> None:
    """Upstream: a second one changes the revision only; it comes before `turn/completed`."""
    client = await stage.client()
    thread_id = await client.start()
    assert (await client.request("thread/read", {"threadId": thread_id}))["readState"] is None

    first, messages = await ended(client, thread_id)
    one = await state_of(client, thread_id)
    _, _ = await ended(client, thread_id)
    two = await state_of(client, thread_id)

    assert params_of(messages, CHANGED) == [{"threadId": thread_id, "readState": one}]
    names = names_of(messages)
    assert names.index(CHANGED) < names.index("turn/completed")
    assert one["firstUnread"] == two["firstUnread"] == turn(first)
    assert one["revision"] != two["revision"]


async def test_a_client_marks_a_thread_as_read_and_as_unread(stage: Stage) -> None:
    """Upstream: unread is the whole thread; the answer precedes the notification."""
    client = await stage.client()
    thread_id = await client.start()
    await ended(client, thread_id)

    read = await mark(client, thread_id, "read")
    assert (await client.until(CHANGED))[-1]["params"]["readState"] == read
    again = await mark(client, thread_id, "read")
    unread = await mark(client, thread_id, "unread")
    await ended(client, thread_id)
    kept = await state_of(client, thread_id)

    assert (read["firstUnread"], again["firstUnread"]) == (None, None)
    assert (unread["firstUnread"], kept["firstUnread"]) == (START, START)
    await mark(client, thread_id, "read")
    later, _ = await ended(client, thread_id)
    assert (await state_of(client, thread_id))["firstUnread"] == turn(later)


async def test_a_thread_whose_unread_turn_is_dropped_is_read(stage: Stage) -> None:
    """Upstream: subscribers are notified; a later turn makes it unread again."""
    client = await stage.client()
    thread_id = await client.start()
    await ended(client, thread_id)
    await mark(client, thread_id, "read")
    first, _ = await ended(client, thread_id)
    second, _ = await ended(client, thread_id)
    unread = await state_of(client, thread_id)

    await client.request("thread/revert", {"threadId": thread_id, "beforeTurnId": second})
    assert await state_of(client, thread_id) == unread
    await client.settled()
    await client.request("thread/revert", {"threadId": thread_id, "beforeTurnId": first})
    notified = (await client.until(CHANGED))[-1]["params"]["readState"]
    assert (notified["firstUnread"], await state_of(client, thread_id)) == (None, notified)
    later, _ = await ended(client, thread_id)
    assert (await state_of(client, thread_id))["firstUnread"] == turn(later)


async def test_turns_without_a_message_leave_a_thread_read(stage: Stage) -> None:
    """Upstream: a failed turn, one without text, and a command of the user."""
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="never", sandbox="danger-full-access")
    await ended(client, thread_id)
    before = await mark(client, thread_id, "read")

    stage.model.plays(fails("invalid_prompt", "no"), Reply([created(), completed()]))
    for _ in range(2):
        await ended(client, thread_id)
    await client.request("thread/shellCommand", {"threadId": thread_id, "command": "true"})
    await client.until("turn/completed")

    assert await state_of(client, thread_id) == before


async def test_an_interrupted_turn_with_a_message_is_unread(stage: Stage) -> None:
    """Upstream."""
    client = await stage.client()
    thread_id = await client.start(approvalPolicy="never", sandbox="danger-full-access")
    both = [*says("on it", "m1").steps[:-1], *calls("exec_command", {"cmd": "sleep 60"}).steps[1:]]
    stage.model.plays(Reply(both))
    turn_id = await client.start_turn(thread_id)
    await client.until("item/started", lambda params: params["item"]["type"] == "commandExecution")
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.end_of(turn_id)

    assert (await state_of(client, thread_id))["firstUnread"] == turn(turn_id)


async def test_only_subscribers_are_notified(stage: Stage) -> None:
    """Upstream: another client reads the state."""
    client, other = await stage.client(), await stage.client()
    thread_id = await client.start()
    await ended(client, thread_id)
    state = await mark(other, thread_id, "read")

    assert (await client.until(CHANGED))[-1]["params"]["readState"] == state
    assert CHANGED not in names_of(await other.settled())


def drop_index(home: Path) -> None:
    """Delete the index, which the next server builds again."""
    for path in home.glob("treadle.sqlite*"):
        path.unlink()


async def test_it_survives_a_restart_and_a_lost_index(stage: Stage, home: Path) -> None:
    """Upstream: it is stored, also while the thread is not loaded."""
    client = await stage.client()
    thread_id = await client.start()
    await ended(client, thread_id)
    unread = await state_of(client, thread_id)

    await stage.restart()
    client = await stage.client()
    assert await state_of(client, thread_id) == unread
    threads = (await client.request("thread/list", {}))["data"]
    read = await mark(client, thread_id, "read")
    await stage.close()
    drop_index(home)
    await stage.restart()
    client = await stage.client()

    assert await state_of(client, thread_id) == read
    after = (await client.request("thread/list", {}))["data"]
    times = ("createdAt", "updatedAt", "recencyAt")
    assert [[each[name] for name in times] for each in after] == [
        [each[name] for name in times] for each in threads
    ]
    await client.request("thread/resume", {"threadId": thread_id})
    assert await state_of(client, thread_id) == read


async def test_forks_are_read_and_archived_threads_keep_their_state(stage: Stage) -> None:
    """Upstream: a state that was never changed has the revision `initial:` and the id."""
    client = await stage.client()
    thread_id = await client.start()
    await ended(client, thread_id)
    fork = await client.request("thread/fork", {"threadId": thread_id})
    fork_id = fork["thread"]["id"]
    initial = {"firstUnread": None, "revision": f"initial:{fork_id}"}

    assert await state_of(client, fork_id) == initial
    assert (await mark(client, fork_id, "unread"))["firstUnread"] == START
    before = await state_of(client, thread_id)
    await client.request("thread/archive", {"threadId": thread_id})
    named = {"threadId": thread_id}
    assert (await client.request("thread/read", named))["readState"] == before
    params = {"expectedRevision": before["revision"], "operation": {"type": "read"}}
    changed = await client.request(UPDATE, {**named, **params})
    await client.request("thread/unarchive", named)
    assert await state_of(client, thread_id) == changed["readState"]


async def test_an_old_revision_changes_nothing_and_is_answered_with_the_state(
    stage: Stage,
) -> None:
    """Upstream: the code, the text and the data."""
    client = await stage.client()
    thread_id = await client.start()
    await ended(client, thread_id)
    current = await state_of(client, thread_id)

    refused = await client.refusal(
        UPDATE,
        {"threadId": thread_id, "expectedRevision": "old", "operation": {"type": "read"}},
    )

    assert (refused.code, refused.message) == (-32600, "read state changed")
    assert refused.data == {
        "kind": "readStateConflict",
        "reason": "readStateConflict",
        "readState": current,
    }
    assert await state_of(client, thread_id) == current


async def test_threads_without_a_state_are_refused(stage: Stage) -> None:
    """Upstream: empty and ephemeral ones; they have no state in answers either."""
    client = await stage.client()
    empty = await client.start()
    ephemeral = await client.start(ephemeral=True)
    _, messages = await ended(client, ephemeral)

    assert CHANGED not in names_of(messages)
    params = {"expectedRevision": "x", "operation": {"type": "read"}}
    for thread_id in (empty, ephemeral):
        refused = await client.refusal(UPDATE, {"threadId": thread_id, **params})
        assert (refused.code, refused.message) == (-32600, "thread read state unavailable")
        answer = await client.request("thread/read", {"threadId": thread_id})
        assert answer["readState"] is None
    missing = await client.refusal(UPDATE, {"threadId": MISSING, **params})
    assert missing.message == f"thread not loaded: {MISSING}"
    invalid = await client.refusal(UPDATE, {"threadId": "nope", **params})
    assert invalid.message == "invalid thread id: 'nope' is not a UUID"


@pytest.mark.parametrize(
    "change",
    [
        {"operation": {"type": "foo"}},
        {"operation": "read"},
        {"operation": None},
        {"expectedRevision": None},
        {"expectedRevision": 5},
        {"threadId": None},
    ],
)
async def test_invalid_updates_are_refused(stage: Stage, change: JsonValue) -> None:
    client = await stage.client()
    params = {"threadId": MISSING, "expectedRevision": "x", "operation": {"type": "read"}}
    refused = await client.refusal(UPDATE, {**params, **change})
    assert refused.code == -32600
    assert next(iter(change)) in refused.message


def append_damage(home: Path) -> None:
    """Append states that cannot be read."""
    (path,) = home.rglob("rollout-*.jsonl")
    with path.open("ab") as file:
        for broken in (b'{"record":"readState"}', b'{"record":"readState","read_state":7}'):
            file.write(b'{"type":"x","payload":{},"treadle":' + broken + b"}\n")


async def test_a_damaged_state_is_skipped(stage: Stage, home: Path) -> None:
    """Ours: any program may have written the line."""
    client = await stage.client()
    thread_id = await client.start()
    await ended(client, thread_id)
    state = await state_of(client, thread_id)
    await stage.close()
    append_damage(home)
    await stage.restart()

    assert await state_of(await stage.client(), thread_id) == state
