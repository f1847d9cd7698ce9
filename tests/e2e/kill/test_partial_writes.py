"""A killed server leaves a beginning of what it wrote; here is every such beginning."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.harness.kills import watching_writes
from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client, said, words
from treadle.model.base import ModelItem
from treadle.model.scripted.script import Response, plan, says, thinks
from treadle.protocol.base import JsonValue

FIRST: list[Response] = [
    [thinks("Hm"), says("Let me see.", deltas=3), plan("look")],
    [says("That is it.")],
]
MESSAGES = {"m1": "first words", "m2": "second words"}


async def say(client: Client, thread_id: str, message_id: str) -> None:
    """Send a message, perhaps again, and see its turn to the end."""
    params = {"input": [said(MESSAGES[message_id])], "clientUserMessageId": message_id}
    answer = await client.ask("turn/start", {"threadId": thread_id, **params})
    turn = answer["turn"]
    if turn["status"] == "inProgress":
        await client.end_of(turn["id"])


def beginnings(rollout: bytes, ends: list[int]) -> Iterator[bytes]:
    """What was there after each write, alone and with a half of the next line."""
    for end in ends:
        if end < len(rollout):
            following = rollout.index(b"\n", end) + 1
            yield rollout[:end]
            yield rollout[: (end + following) // 2]


def completed(rollout: bytes) -> int:
    """How many items a client was told to be complete."""
    whole_lines = rollout[: rollout.rindex(b"\n")]
    return whole_lines.count(b'"method":"item/completed"')


def waiting(rollout: bytes) -> int:
    """How many messages a client was promised that no turn had taken up."""
    whole_lines = rollout[: rollout.rindex(b"\n")]
    return whole_lines.count(b'{"record":"input"') - whole_lines.count(b'{"record":"inputTaken"')


def user_words(items: list[ModelItem]) -> list[str]:
    """Which of the messages the model is shown, and how often."""
    texts = [str(item.get("content")) for item in items if item.get("role") == "user"]
    return [words for text in texts for words in MESSAGES.values() if words in text]


async def record(home: Path) -> tuple[str, Path]:
    """Have a conversation and give its thread and file."""
    async with playing(home, FIRST * 3) as server, client_of(server) as client:
        answer = await client.ask("thread/start", {})
        thread = answer["thread"]
        for message_id in MESSAGES:
            await say(client, thread["id"], message_id)
    return thread["id"], Path(thread["path"])


async def go_on(home: Path, thread_id: str) -> tuple[JsonValue, JsonValue, list[str]]:
    """Resume, repeat every message as a client does that does not know what arrived."""
    async with playing(home, FIRST * 3) as server, client_of(server) as client:
        answer = await client.ask("thread/resume", {"threadId": thread_id})
        for message_id in MESSAGES:
            await say(client, thread_id, message_id)
        after = await client.read(thread_id)
        shown = user_words(list(server.threads.get(thread_id).history.items))
    return answer["thread"], after, shown


async def test_from_every_beginning_the_conversation_goes_on_as_if_nothing_had_been(
    home: Path,
) -> None:
    """Ours: no message doubled or lost, no told item lost, every turn with an end."""
    with watching_writes() as sizes:
        thread_id, path = await record(home)
    rollout = path.read_bytes()
    ends = sizes[path.stat().st_ino]
    place = path.relative_to(home)
    for number, beginning in enumerate(beginnings(rollout, ends)):
        other = home.parent / f"home-{number}"
        (other / place).parent.mkdir(parents=True)
        (other / place).write_bytes(beginning)
        async with asyncio.timeout(10):
            resumed, after, shown = await go_on(other, thread_id)
        about = f"killed after {beginning[-200:]!r}"
        assert all(turn["status"] != "inProgress" for turn in resumed["turns"]), about
        known = completed(beginning) + waiting(beginning)
        assert sum(len(turn["items"]) for turn in resumed["turns"]) == known, about
        statuses = {turn["status"] for turn in after["turns"]}
        assert statuses <= {"completed", "interrupted"}, about
        user = [word for turn in words(after) for word in turn if word in MESSAGES.values()]
        assert user == list(MESSAGES.values()), about
        assert shown == list(MESSAGES.values()), about
        shutil.rmtree(other)
