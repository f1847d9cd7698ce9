"""Whole conversations, side by side with the reference server and the same model.

Both go through the same steps; the order of what they say and its keys must be the same, but for
the differences that a scenario names.
"""

from __future__ import annotations

import asyncio
import difflib
import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.programs import folder_for_homes
from tests.harness.model_server import ModelServer, model_server
from tests.harness.releases import NEWEST, OLDER, program
from tests.harness.threads import Client, configure, keys, line_of, spawned
from treadle.protocol.base import JsonValue

# Not in a fixed place, or about things that this server does not have.
LEFT_OUT = frozenset(
    {
        "account/rateLimits/updated",  # sent to every client, in no fixed place
        "deprecationNotice",  # nothing that it speaks of is deprecated here
        "remoteControl/status/changed",  # no remote control
        "thread/readState/changed",  # no read states
        "thread/tokenUsage/updated",  # repeated by the reference at times; tested elsewhere
        "warning",  # once per thread here, in every turn there
        "configWarning",
    }
)
GOES = 3
# Numbers of events, and what an error says to programs.
OURS = frozenset({".seq", ".error.data", ".error.data.kind", ".error.data.path"})
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass
class Scene:
    """What a scenario has to work with."""

    client: Client
    model: ModelServer
    cwd: str
    reopen: Callable[[], Awaitable[Client]]


@dataclass(frozen=True)
class Scenario:
    """Steps, and in what the two servers differ: lines of a diff, and keys that only one has."""

    steps: Callable[[Scene], Awaitable[None]]
    differences: Sequence[str] = ()
    keys: frozenset[str] = field(default_factory=frozenset)
    # Values that may differ, by their path; what tools did is compared value by value.
    values: frozenset[str] = field(default_factory=frozenset)
    config: str = ""
    # What `rules/default.rules` says.
    rules: str = ""
    # Lines that are in no fixed place.
    loose: frozenset[str] = field(default_factory=frozenset)
    # Whether anything happens in a thread.
    has_events: bool = True
    # Whether what the model got back is compared too.
    outputs: bool = True


@dataclass(frozen=True)
class Played:
    """What one of the servers said to its client, and to its model about its calls."""

    messages: list[JsonValue]
    outputs: dict[str, JsonValue]


async def play(kind: str, scenario: Scenario, folder: Path) -> Played:
    """Go through the steps with one of the servers, and give all that it said."""
    cwd = folder / "workspace"
    shutil.rmtree(cwd, ignore_errors=True)
    cwd.mkdir()
    command = [program(kind), "app-server"]
    async with asyncio.timeout(40), model_server() as model, AsyncExitStack() as stack:
        place = TemporaryDirectory(dir=folder_for_homes(), prefix="home-")
        home = Path(stack.enter_context(place))
        configure(home, model, scenario.config)
        if scenario.rules:
            (home / "rules").mkdir()
            (home / "rules" / "default.rules").write_text(scenario.rules, "utf-8")
        process = await stack.enter_async_context(AsyncExitStack())
        client = await process.enter_async_context(spawned(command, home))

        async def reopen() -> Client:
            await process.aclose()
            another = await process.enter_async_context(spawned(command, home))
            another.received[:0] = client.received
            scene.client = another
            return another

        scene = Scene(client, model, str(cwd), reopen)
        await scenario.steps(scene)
        kept = [each for each in scene.client.received if each.get("method") not in LEFT_OUT]
        messages = without_repeats(kept)
        outputs: dict[str, JsonValue] = {}
        for request in model.requests:
            outputs |= request.outputs()
        return Played(messages if kind == "treadle" else replies_first(messages), outputs)


def without_repeats(messages: list[JsonValue]) -> list[JsonValue]:
    """Leave out repeated diffs of a turn: the reference sends each up to four times."""
    last_diff: JsonValue = None
    kept: list[JsonValue] = []
    for message in messages:
        if message.get("method") == "turn/diff/updated":
            if message["params"] == last_diff:
                continue
            last_diff = message["params"]
        kept.append(message)
    return kept


_AT_THE_START = ("thread/status/changed", "thread/settings/updated")


def replies_first(messages: list[JsonValue]) -> list[JsonValue]:
    """Put the answer to turn/start before the turn's events: upstream's may overtake it."""
    settled: list[JsonValue] = []
    answered: set[str] = set()
    for message in messages:
        turn = (message.get("result") or {}).get("turn")
        place = len(settled)
        # A second start that joins the turn is answered with the same id, in its own place.
        if turn is not None and turn["id"] not in answered:
            answered.add(turn["id"])
            places = [i for i, each in enumerate(settled) if _turn_of(each) == turn["id"]]
            place = min(places, default=place)
            while place and settled[place - 1].get("method") in _AT_THE_START:
                place -= 1
        settled.insert(place, message)
    return settled


def _turn_of(message: JsonValue) -> JsonValue:
    params = message.get("params") or {}
    return params.get("turnId") or (params.get("turn") or {}).get("id")


def lines(messages: Sequence[JsonValue]) -> list[str]:
    """The messages in short form, without ids."""
    return [_ID.sub("<id>", line_of(message)) for message in messages]


def keys_by_line(messages: Sequence[JsonValue]) -> dict[str, set[str]]:
    """The keys of all messages with the same short form."""
    found: dict[str, set[str]] = {}
    for message, line in zip(messages, lines(messages), strict=True):
        found.setdefault(line, set()).update(keys(message))
    return found


def is_expected(key: str) -> bool:
    """Whether one of the servers may have this key alone: read states are not kept here."""
    return key in OURS or ".readState" in key


async def compare(scenario: Scenario, folder: Path) -> None:
    """Let both servers go through the steps, and hold what they say side by side."""
    await _compare(NEWEST, scenario, folder, hold_together)


async def compare_older(scenario: Scenario, folder: Path) -> None:
    """Hold what we say beside what the older release says, of which we know more words."""
    await _compare(OLDER, scenario, folder, _hold_known)


async def _compare(
    kind: str, scenario: Scenario, folder: Path, hold: Callable[[Scenario, Played, Played], None]
) -> None:
    """The reference's tasks race, so it may be run again; ours runs once.

    On a busy machine it may also not say at all what it is waited for, a question for example.
    """
    ours = await play("treadle", scenario, folder)
    for goes_left in reversed(range(GOES)):
        try:
            theirs = await play(kind, scenario, folder)
            hold(scenario, theirs, ours)
        except (AssertionError, TimeoutError):
            if not goes_left:
                raise
        else:
            return


def _hold_known(scenario: Scenario, theirs: Played, ours: Played) -> None:
    assert line_differences(scenario, theirs, ours) == list(scenario.differences)
    ignored = VOLATILE | scenario.values
    pairs = zip(deeds(ours.messages, ignored), deeds(theirs.messages, ignored), strict=False)
    for own, other in pairs:
        assert _as_known(own, other) == other
    if scenario.outputs:
        assert plain_outputs(ours.outputs) == plain_outputs(theirs.outputs)


def _as_known(value: JsonValue, other: JsonValue) -> JsonValue:
    """A value without the keys that the other does not have."""
    if isinstance(value, dict) and isinstance(other, dict):
        return {key: _as_known(value[key], other[key]) for key in value.keys() & other.keys()}
    if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        return [_as_known(*pair) for pair in zip(value, other, strict=True)]
    return value


def line_differences(scenario: Scenario, theirs: Played, ours: Played) -> list[str]:
    """What only one of them says, or in another place."""
    compared = difflib.ndiff(
        [line for line in lines(theirs.messages) if line not in scenario.loose],
        [line for line in lines(ours.messages) if line not in scenario.loose],
    )
    return [line for line in compared if line[0] in "+-"]


def hold_together(scenario: Scenario, theirs: Played, ours: Played) -> None:
    """Find the differences that the scenario does not name."""
    assert [any("seq" in each for each in p.messages) for p in (theirs, ours)] == [
        False,
        scenario.has_events,
    ]
    assert line_differences(scenario, theirs, ours) == list(scenario.differences)
    their_keys, our_keys = keys_by_line(theirs.messages), keys_by_line(ours.messages)
    differing = {
        (line, key)
        for line in their_keys.keys() & our_keys.keys()
        for key in their_keys[line] ^ our_keys[line]
        if not is_expected(key) and key not in scenario.keys
    }
    assert differing == set()
    ignored = VOLATILE | scenario.values
    extra = [line[2:] for line in scenario.differences if line.startswith("+ ")]
    own = [each for each in ours.messages if line_of(each) not in extra]
    assert deeds(own, ignored) == deeds(theirs.messages, ignored)
    if scenario.outputs:
        assert plain_outputs(ours.outputs) == plain_outputs(theirs.outputs)


VOLATILE = frozenset(
    {"id", "seq", "emittedAtMs", "processId", "durationMs", "startedAtMs", "completedAtMs"}
)
_DEEDS = frozenset(
    {"commandExecution", "fileChange", "dynamicToolCall", "imageView", "mcpToolCall"}
)


def deeds(messages: Sequence[JsonValue], ignored: frozenset[str]) -> list[JsonValue]:
    """What tools did and clients were asked, without what differs from run to run."""
    return [_still(message, ignored) for message in messages if _is_deed(message)]


def _is_deed(message: JsonValue) -> bool:
    method, params = message.get("method", ""), message.get("params") or {}
    if method in ("item/started", "item/completed"):
        return params["item"]["type"] in _DEEDS
    return ("id" in message and "method" in message) or method == "turn/diff/updated"


def _still(value: JsonValue, ignored: frozenset[str]) -> JsonValue:
    if isinstance(value, dict):
        return {k: _still(v, ignored) for k, v in value.items() if k not in ignored}
    if isinstance(value, list):
        return [_still(each, ignored) for each in value]
    return _ID.sub("<id>", value) if isinstance(value, str) else value


_TIMES = re.compile(
    r"Chunk ID: [0-9a-f]+|Wall time: [0-9.]+|session ID \d+|after [0-9.]+s"
    r"|after \d+ milliseconds|\"duration_seconds\":[0-9.]+"
)


def plain_outputs(outputs: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """What the model got back, without times and numbers of the day."""
    return {
        call: _TIMES.sub("~", output) if isinstance(output, str) else output
        for call, output in outputs.items()
    }
