"""Whole conversations that Treadle and the reference have with a client and the same model.

Treadle plays a scenario in the test's own process, a release of the reference in a process of its
own. What the release sent is recorded (`golden.py`), and Treadle is compared with the recording.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from benchmarks.programs import folder_for_homes
from tests.harness.golden import Golden
from tests.harness.lines import in_memory
from tests.harness.model_server import ModelServer, model_server
from tests.harness.releases import OLDER
from tests.harness.sandbox import SANDBOX
from tests.harness.threads import Client, configure, environment, line_of, spawned
from tests.harness.transcripts import Transcript, keys_by_line, lines, tool_values
from treadle.config.configuration import Configuration
from treadle.protocol.base import JsonValue
from treadle.server.server import Server

ATTEMPTS = 3
"""How often the reference may play a scenario until it does what is recorded: its tasks race."""


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
    # Values that may differ, by their name; what tools did is compared value by value.
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


async def check(golden: Golden, name: str, scenario: Scenario, folder: Path) -> None:
    """Play a scenario, and compare with what the reference did when it was recorded.

    With `make record`, record what the reference does.
    """
    if not golden.runs_reference:
        ours = await play(golden, scenario, folder)
        recorded = Transcript.from_json(golden.load(name))
        compare = assert_knows_older if golden.release == OLDER else assert_same
        compare(scenario, recorded, ours)
    elif golden.is_recorded:
        golden.save(name, (await _likely(golden, scenario, folder)).to_json())
    else:
        await _check_recording(golden, name, scenario, folder)


async def _check_recording(golden: Golden, name: str, scenario: Scenario, folder: Path) -> None:
    """Compare the reference with its recording.

    On a busy machine it may also not say at all what it is waited for, a question for example.
    """
    recorded = Transcript.from_json(golden.load(name)).compared(scenario.loose, scenario.values)
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            played = (await play(golden, scenario, folder)).compared(
                scenario.loose, scenario.values
            )
        except (AssertionError, TimeoutError):
            if not attempts_left:
                raise
            continue
        if played == recorded or not attempts_left:
            golden.equal(name, recorded, played)
            return


async def _likely(golden: Golden, scenario: Scenario, folder: Path) -> Transcript:
    """Return what the reference did twice, or last if no two of its attempts were the same."""
    compared: list[JsonValue] = []
    while True:
        played = await play(golden, scenario, folder)
        parts = played.compared(scenario.loose, scenario.values)
        if parts in compared or len(compared) == ATTEMPTS:
            return played
        compared.append(parts)


async def play(golden: Golden, scenario: Scenario, folder: Path) -> Transcript:
    """Go through the steps with one of the servers, and return all that it sent."""
    cwd = folder / "workspace"
    shutil.rmtree(cwd, ignore_errors=True)
    cwd.mkdir()
    async with asyncio.timeout(40), model_server() as model, AsyncExitStack() as stack:
        place = TemporaryDirectory(dir=folder_for_homes(), prefix="home-")
        home = Path(stack.enter_context(place))
        configure(home, model, scenario.config)
        if scenario.rules:
            (home / "rules").mkdir()
            (home / "rules" / "default.rules").write_text(scenario.rules, "utf-8")
        server = await stack.enter_async_context(AsyncExitStack())
        client = await server.enter_async_context(_served(golden, home))

        async def reopen() -> Client:
            await server.aclose()
            another = await server.enter_async_context(_served(golden, home))
            another.received[:0] = client.received
            scene.client = another
            return another

        scene = Scene(client, model, str(cwd), reopen)
        await scenario.steps(scene)
        outputs: dict[str, JsonValue] = {}
        for request in model.requests:
            outputs |= request.outputs()
        names = {str(cwd): "<workspace>", str(folder): "<folder>", str(home): "<home>"}
        # The reference names files in diffs from a folder above, if that is a repository.
        names |= {str(cwd.relative_to(each)): "<workspace>" for each in folder.parents}
        return Transcript.of(scene.client.received, outputs, names)


@asynccontextmanager
async def _served(golden: Golden, home: Path) -> AsyncIterator[Client]:
    """A client of the server that the test runs; Treadle runs in this process."""
    if golden.runs_reference:
        async with spawned((golden.program, "app-server"), home) as client:
            yield client
        return
    with contextlib.chdir(home), mock.patch.dict(os.environ, environment(home), clear=True):
        server = Server(sandbox=SANDBOX, configuration=Configuration(home))
        try:
            async with in_memory(server) as peer:
                client = Client(peer)
                await client.initialize()
                yield client
        finally:
            await server.close()


# Numbers of events, and what an error says to programs.
TREADLE_KEYS = frozenset({".seq", ".error.data", ".error.data.kind", ".error.data.path"})


def assert_same(scenario: Scenario, recorded: Transcript, ours: Transcript) -> None:
    """Find the differences from the reference that are not allowed, and those that are gone."""
    assert [any("seq" in each for each in side.messages) for side in (recorded, ours)] == [
        False,
        scenario.has_events,
    ]
    assert _line_differences(scenario, recorded, ours) == list(scenario.differences)
    their_keys, our_keys = keys_by_line(recorded.messages), keys_by_line(ours.messages)
    differing = {
        (line, key)
        for line in their_keys.keys() & our_keys.keys()
        for key in their_keys[line] ^ our_keys[line]
        if not _is_expected(key) and key not in scenario.keys
    }
    assert differing == set()
    ignored = scenario.values
    extra = [line[2:] for line in scenario.differences if line.startswith("+ ")]
    own = [each for each in ours.messages if line_of(each) not in extra]
    assert tool_values(own, ignored) == tool_values(recorded.messages, ignored)
    if scenario.outputs:
        assert ours.outputs == recorded.outputs


def assert_knows_older(scenario: Scenario, recorded: Transcript, ours: Transcript) -> None:
    """Compare with a release that knows fewer keys; ours may have more."""
    assert _line_differences(scenario, recorded, ours) == list(scenario.differences)
    ignored = scenario.values
    sides = (tool_values(side.messages, ignored) for side in (ours, recorded))
    for own, other in zip(*sides, strict=False):
        assert _as_known(own, other) == other
    if scenario.outputs:
        assert ours.outputs == recorded.outputs


# Times of items and tokens of messages, which releases before 0.169.0 do not have.
NEWER_KEYS = re.compile(r"\.items?(\[\])?\.(startedAtMs|completedAtMs)|\.params\.contentTokenCount")


def _is_expected(key: str) -> bool:
    """Whether one of the servers may have this key alone."""
    return key in TREADLE_KEYS or NEWER_KEYS.search(key) is not None


def _as_known(value: JsonValue, other: JsonValue) -> JsonValue:
    """A value without the keys that the other does not have."""
    if isinstance(value, dict) and isinstance(other, dict):
        return {key: _as_known(value[key], other[key]) for key in value.keys() & other.keys()}
    if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        return [_as_known(*pair) for pair in zip(value, other, strict=True)]
    return value


def _line_differences(scenario: Scenario, recorded: Transcript, ours: Transcript) -> list[str]:
    """What only one of them says, or in another place."""
    compared = difflib.ndiff(
        [line for line in lines(recorded.messages) if line not in scenario.loose],
        [line for line in lines(ours.messages) if line not in scenario.loose],
    )
    return [line for line in compared if line[0] in "+-"]
