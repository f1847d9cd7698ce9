"""A killed server leaves a prefix of what it wrote; these tests try every such prefix."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.harness.kills import watching_writes
from tests.harness.scripted import client_of, playing
from tests.harness.threads import Client, text_input, words
from treadle.model.base import ModelItem
from treadle.model.scripted.script import Response, plan, says, thinks
from treadle.protocol.base import JsonValue

FIRST: list[Response] = [
    [thinks("Hm"), says("Let me see.", deltas=3), plan("look")],
    [says("That is it.")],
]
MESSAGES = {"m1": "first words", "m2": "second words"}


async def say(client: Client, thread_id: str, message_id: str) -> None:
    """Send a message, possibly again, and wait for the end of its turn."""
    params = {"input": [text_input(MESSAGES[message_id])], "clientUserMessageId": message_id}
    answer = await client.request("turn/start", {"threadId": thread_id, **params})
    turn = answer["turn"]
    if turn["status"] == "inProgress":
        await client.end_of(turn["id"])


def beginnings(rollout: bytes, ends: list[int]) -> Iterator[bytes]:
    """The file after each write, alone and with half of the next line."""
    for end in ends:
        if end < len(rollout):
            following = rollout.index(b"\n", end) + 1
            yield rollout[:end]
            yield rollout[: (end + following) // 2]


def completed(rollout: bytes) -> int:
    """How many items a client has received as completed."""
    whole_lines = rollout[: rollout.rindex(b"\n")]
    return whole_lines.count(b'"method":"item/completed"')


def waiting(rollout: bytes) -> int:
    """How many accepted messages no turn had taken up."""
    whole_lines = rollout[: rollout.rindex(b"\n")]
    return whole_lines.count(b'{"record":"input"') - whole_lines.count(b'{"record":"inputTaken"')


def user_words(items: list[ModelItem]) -> list[str]:
    """Which of the messages the model is shown, and how often."""
    texts = [str(item.get("content")) for item in items if item.get("role") == "user"]
    return [words for text in texts for words in MESSAGES.values() if words in text]


async def record(home: Path) -> tuple[str, Path]:
    """Hold a conversation and return its thread and file."""
    async with playing(home, FIRST * 3) as server, client_of(server) as client:
        answer = await client.request("thread/start", {})
        thread = answer["thread"]
        for message_id in MESSAGES:
            await say(client, thread["id"], message_id)
    return thread["id"], Path(thread["path"])


async def go_on(home: Path, thread_id: str) -> tuple[JsonValue, JsonValue, list[str]]:
    """Resume, and repeat every message like a client that does not know what arrived."""
    async with playing(home, FIRST * 3) as server, client_of(server) as client:
        answer = await client.request("thread/resume", {"threadId": thread_id})
        for message_id in MESSAGES:
            await say(client, thread_id, message_id)
        after = await client.read(thread_id)
        shown = user_words(list(server.threads.get(thread_id).context.history.items))
    return answer["thread"], after, shown


async def test_from_every_prefix_the_conversation_continues_normally(
    home: Path,
) -> None:
    """Ours: no message is duplicated or lost, no published item is lost, every turn ends."""
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
