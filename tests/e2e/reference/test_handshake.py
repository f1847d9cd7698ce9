"""The opening moves again, side by side with the reference server that is installed here."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

from tests.harness.golden import Golden
from tests.harness.peer import Peer
from tests.harness.placeholders import placeholders
from tests.harness.steps import STEPS
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import spawn

DIFFERENCES: dict[JsonValue, str] = {
    16: "the documented spelling of an approval policy is accepted here",
    17: "the documented spelling of a sandbox mode is accepted here",
    23: "0.163 dropped the field and ignores it; 0.118 gated it, and so do we",
}
# 0.163 wants a field that 0.118 did not know; the code of the refusal is the same.
GATED_BEFORE_READ = {27}


async def converse(command: Sequence[str], home: Path) -> dict[JsonValue, JsonValue]:
    """Make every move at once, wait for the answers, hang up, and give them by id."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home), "TERM": "xterm"}
    asked = [message["id"] for message in _documents() if "method" in message and _is_call(message)]
    answers: dict[JsonValue, JsonValue] = {}
    async with asyncio.timeout(50):
        peer = Peer(spawn(command, cwd=home, env=env))
        try:
            await peer.send_raw(*(step.frame for step in STEPS))
            while len(answers) < len(asked):
                _note(await peer.receive(), answers)
        finally:
            await peer.transport.close()
        for message in await peer.receive_all():
            _note(message, answers)
    return answers


def _note(message: JsonValue, answers: dict[JsonValue, JsonValue]) -> None:
    if "method" not in message:
        assert message["id"] not in answers, "answered twice"
        answers[message["id"]] = message


def _documents() -> list[JsonValue]:
    documents = []
    for step in STEPS:
        try:
            documents.append(json.loads(step.frame))
        except ValueError:
            continue
    return [document for document in documents if isinstance(document, dict)]


def _is_call(message: JsonValue) -> bool:
    return type(message.get("id")) in (int, str)


def _outline(answer: JsonValue) -> JsonValue:
    """What clients rely on: the code of an error, the names in a result."""
    if "error" in answer:
        return answer["error"]["code"]
    return sorted(answer["result"])


async def test_the_same_moves_are_answered_in_the_same_way(golden: Golden, home: Path) -> None:
    answers = await converse([golden.program, "app-server"], home)
    # The order of answers is that of their ids; ids are numbers or texts.
    document = [answers[id_] for id_ in sorted(answers, key=repr)]
    golden.check("answers", placeholders(document, {str(home): "<home>"}), assert_same_answers)


def assert_same_answers(recorded: JsonValue, own: JsonValue) -> None:
    """Compare the codes of errors, the names in results, and words that clients match."""
    theirs, ours = ({each["id"]: each for each in side} for side in (recorded, own))
    assert ours.keys() == theirs.keys()
    different = {id_ for id_ in ours if _outline(ours[id_]) != _outline(theirs[id_])}
    assert different - not_built(ours) == DIFFERENCES.keys() - not_built(ours)
    _check_words(theirs, ours)


def not_built(answers: dict[JsonValue, JsonValue]) -> set[JsonValue]:
    """What the server says it cannot do yet: there is nothing to compare."""
    return {
        id_
        for id_, answer in answers.items()
        if answer.get("error", {}).get("data", {}).get("kind") == "notImplemented"
    }


def _check_words(theirs: dict[JsonValue, JsonValue], ours: dict[JsonValue, JsonValue]) -> None:
    """Clients match on these beginnings."""
    known = ("Not init", "Already init", "Invalid request: missing field `", "Invalid request: unk")
    for id_ in theirs.keys() - DIFFERENCES.keys() - GATED_BEFORE_READ:
        message = theirs[id_].get("error", {}).get("message", "")
        for words in known:
            if message.startswith(words):
                assert ours[id_]["error"]["message"].startswith(words)
