"""Read states, side by side with the reference: every answer and every notification."""

from __future__ import annotations

from pathlib import Path

from tests.harness.golden import Golden
from tests.harness.model_server import Reply, completed, created
from tests.harness.placeholders import placeholders
from tests.harness.scenarios import Scenario, Scene, play
from tests.harness.threads import Client, Refused
from treadle.protocol.base import JsonValue

UPDATE, CHANGED = "thread/readState/update", "thread/readState/changed"


class Answers:
    """What a server answers about read states, in order."""

    def __init__(self) -> None:
        self.seen: list[JsonValue] = []
        self._names: dict[str, str] = {}

    async def read(self, client: Client, thread_id: str) -> str:
        """Read the state of a thread, and return its revision."""
        state = (await client.request("thread/read", {"threadId": thread_id}))["readState"]
        listed = await client.request("thread/list", {})
        assert (listed["readStates"] or {}).get(thread_id) == state
        self._add("read", state)
        return "" if state is None else str(state["revision"])

    async def mark(self, client: Client, thread_id: str, operation: str, revision: str) -> None:
        """Mark a thread."""
        params = {"expectedRevision": revision, "operation": {"type": operation}}
        try:
            answer = await client.request(UPDATE, {"threadId": thread_id, **params})
        except Refused as refused:
            data = dict(refused.data) if isinstance(refused.data, dict) else {}
            data.pop("kind", None)  # ours alone
            self._add("refused", [refused.code, str(refused.message), data])
        else:
            self._add(operation, answer["readState"])

    def notified(self, messages: list[JsonValue]) -> None:
        """Add the notifications among these messages."""
        for message in messages:
            if message.get("method") == CHANGED:
                self._add("changed", message["params"]["readState"])

    def _add(self, what: str, value: JsonValue) -> None:
        self.seen.append([what, self._named(value)])

    def _named(self, value: JsonValue) -> JsonValue:
        """Return a value in which revisions and turns have the numbers of their first places."""
        if isinstance(value, list):
            return [self._named(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            key: self._names.setdefault(each, f"<{key}-{len(self._names)}>")
            if key in ("revision", "turnId")
            else self._named(each)
            for key, each in sorted(value.items())
        }


async def test_both_servers_keep_the_same_read_states(golden: Golden, tmp_path: Path) -> None:
    """Upstream: which turns are unread, what a client may change, what survives a restart."""
    answers = Answers()

    async def steps(scene: Scene) -> None:
        client = scene.client
        thread_id = await client.start(cwd=scene.cwd)
        await answers.read(client, thread_id)
        await answers.mark(client, thread_id, "read", "none")
        answers.notified(await client.run(thread_id))
        await answers.read(client, thread_id)
        answers.notified(await client.run(thread_id))
        revision = await answers.read(client, thread_id)
        await answers.mark(client, thread_id, "read", "old")
        await answers.mark(client, thread_id, "read", revision)
        answers.notified(await client.until(CHANGED))
        scene.model.plays(Reply([created(), completed()]))
        answers.notified(await client.run(thread_id, "no message"))
        revision = await answers.read(client, thread_id)
        await answers.mark(client, thread_id, "unread", revision)
        answers.notified(await client.until(CHANGED))
        answers.notified(await client.run(thread_id))
        await answers.read(client, thread_id)
        another = await scene.reopen()
        revision = await answers.read(another, thread_id)
        await answers.mark(another, thread_id, "read", revision)
        await answers.read(another, thread_id)

    await play(golden, Scenario(steps), tmp_path)
    golden.check("answers", placeholders(answers.seen))
