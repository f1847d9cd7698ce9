"""A turn ends once and reports it once, whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from tests.harness.sandbox import SANDBOX
from treadle.engine.services import EngineServices, EngineSources
from treadle.engine.settings import RunSettings
from treadle.engine.thread import LoadedThread
from treadle.engine.threads import Threads
from treadle.engine.tools.registry import Output, ToolCall, ToolRegistry
from treadle.engine.turn import ActiveTurn
from treadle.model.base import Model, ModelRequest, ModelTool
from treadle.model.retry import RetryPolicy
from treadle.model.scripted.model import ScriptedModel, calls, says, waits_for
from treadle.model.scripted.script import AnyStep, Response
from treadle.protocol.input import TextUserInput
from treadle.protocol.turn import (
    TurnCompletedNotification,
    TurnStartedNotification,
    TurnStartParams,
)
from treadle.store.store import Store

SECONDS = 10


class OneModel:
    """Gives every thread the same model."""

    def __init__(self) -> None:
        self.script: Callable[[ModelRequest], Response] = lambda _request: "done"
        self._model = ScriptedModel(self._play)

    def _play(self, request: ModelRequest) -> Response:
        return self.script(request)

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:  # noqa: ARG002 - the contract's
        """The model."""
        return self._model, RetryPolicy(request_max_retries=0, stream_max_retries=0)

    async def close(self) -> None:
        """There is nothing to let go of."""


class Explosive:
    """A tool that fails in an unexpected way."""

    name = "explode"

    def spec(self) -> ModelTool:
        """How the model is offered it."""
        return {"type": "function", "name": self.name, "parameters": {}}

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:  # noqa: ARG002 - a tool's signature
        """Break."""
        raise ZeroDivisionError


@pytest.fixture
def models() -> OneModel:
    """A model whose script a test may change."""
    return OneModel()


@pytest.fixture
async def threads(home: Path, models: OneModel) -> AsyncIterator[Threads]:
    """The threads of a fresh home."""
    threads = Threads(Store(home), EngineServices(home, EngineSources(models=models), SANDBOX))
    yield threads
    await threads.close()


def begin(threads: Threads) -> LoadedThread:
    """A new thread."""
    settings = RunSettings(model="scripted", model_provider="scripted", cwd="/")
    return threads.start(settings, describe=lambda meta: meta)


def start(thread: LoadedThread) -> ActiveTurn:
    """Start a turn and give it."""
    asked = TurnStartParams(input=[TextUserInput(text="hi")], thread_id=thread.id)
    accepted = thread.begin_turn(asked)
    assert thread.turn is not None
    turn = thread.turn
    accepted.start()
    return turn


async def ended(thread: LoadedThread, turn: ActiveTurn) -> list[str]:
    """Wait for the end of a turn and return all ends that were published of it."""
    async with asyncio.timeout(SECONDS):
        await turn.ended.wait()
    assert thread.turn is None
    events = list(thread.journal.read(0))
    begun = [each for each in events if isinstance(each.params, TurnStartedNotification)]
    assert len(begun) == 1
    return [
        each.params.turn.status
        for each in events
        if isinstance(each.params, TurnCompletedNotification)
    ]


async def test_an_unexpected_exception_of_the_model_fails_the_turn(
    threads: Threads, models: OneModel
) -> None:
    def broken(_request: ModelRequest) -> Response:
        raise ZeroDivisionError

    models.script = broken
    thread = begin(threads)
    turn = start(thread)

    assert await ended(thread, turn) == ["failed"]
    assert turn.error is not None
    assert turn.error.message == "internal error"


async def test_a_model_that_fails_during_its_response_fails_the_turn(
    threads: Threads, models: OneModel
) -> None:
    nonsense = cast("AnyStep", object())  # no step at all: what a bug in a model would do
    models.script = lambda _request: [says("hi"), nonsense]
    thread = begin(threads)

    assert await ended(thread, start(thread)) == ["failed"]


async def test_an_unexpected_exception_of_a_tool_is_reported_to_the_model(
    threads: Threads, models: OneModel
) -> None:
    thread = begin(threads)
    thread.tools = ToolRegistry(lambda: [Explosive()])
    heard: list[object] = []

    def script(request: ModelRequest) -> Response:
        heard.extend(item.get("output") for item in request.input if "output" in item)
        return "sorry" if heard else calls("explode")

    models.script = script

    assert await ended(thread, start(thread)) == ["completed"]
    assert heard == ["the tool explode failed"]


async def test_a_turn_that_is_cancelled_before_its_first_step_is_interrupted(
    threads: Threads,
) -> None:
    thread = begin(threads)
    turn = start(thread)
    thread.active_turn("interrupt", turn.id).stop()
    thread.active_turn("interrupt", turn.id).stop()

    assert await ended(thread, turn) == ["interrupted"]


async def test_closing_ends_the_active_turns(threads: Threads, models: OneModel) -> None:
    models.script = lambda _request: [says("part"), waits_for(asyncio.Event())]
    thread = begin(threads)
    turn = start(thread)
    await threads.close()

    assert turn.state == "interrupted"
    assert turn.is_over


async def test_a_thread_whose_journal_fails_does_not_stay_busy(
    threads: Threads, models: OneModel
) -> None:
    """A full disk costs the turn, not the thread."""
    gate = asyncio.Event()
    models.script = lambda _request: [waits_for(gate), "lost"]
    thread = begin(threads)
    turn = start(thread)
    thread.journal.close()
    gate.set()
    assert turn.task is not None
    async with asyncio.timeout(SECONDS):
        await asyncio.wait([turn.task])

    assert thread.turn is None


async def test_invalid_transitions_of_a_turn_are_rejected(threads: Threads) -> None:
    thread = begin(threads)
    turn = start(thread)
    await ended(thread, turn)

    with pytest.raises(LookupError, match="completed cannot interrupt"):
        turn.end("interrupt", None)
