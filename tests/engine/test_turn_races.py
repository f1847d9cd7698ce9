"""Starts, steers and interrupts at seeded moments: no end is missing, no word is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.sandbox import SANDBOX
from treadle.engine.errors import EngineError
from treadle.engine.services import EngineServices, EngineSources
from treadle.engine.settings import RunSettings
from treadle.engine.thread import LoadedThread
from treadle.engine.threads import Threads
from treadle.model.base import Model, ModelRequest
from treadle.model.retry import RetryPolicy
from treadle.model.scripted.model import ScriptedModel, calls, fails, plan, says
from treadle.model.scripted.script import Response
from treadle.protocol.input import TextUserInput, UserInput
from treadle.protocol.item import UserMessageThreadItem
from treadle.protocol.turn import (
    TurnCompletedNotification,
    TurnStartedNotification,
    TurnStartParams,
    TurnSteerParams,
)
from treadle.store.store import Store

SECONDS = 20
MOVES = 150


class Moody:
    """A model that talks, calls tools and fails as its seed has it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a seed is the point
        self._model = ScriptedModel(self._play)

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:  # noqa: ARG002 - the contract's
        """The model."""
        retry = RetryPolicy(request_max_retries=1, stream_max_retries=1, first_delay_s=0)
        return self._model, retry

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _play(self, _request: ModelRequest) -> Response:
        deltas = ["x"] * self._random.randrange(200)
        talk = says("".join(deltas), deltas=deltas)
        mood = self._random.random()
        if mood < 0.2:
            return [talk, plan("a"), calls("no_such_tool")]
        if mood < 0.3:
            return [talk, fails(is_retryable=self._random.random() < 0.5)]
        return talk


class Crowd:
    """Clients that all want something of one thread."""

    def __init__(self, thread: LoadedThread, seed: int) -> None:
        self.thread = thread
        self.said: list[str] = []
        self._random = random.Random(seed)  # noqa: S311 - a seed is the point

    async def act(self) -> None:
        """Make moves, with a random number of the loop's rounds between them."""
        for number in range(MOVES):
            with suppress(EngineError):
                self._move(f"message {number}")
            for _ in range(self._random.randrange(12)):
                await asyncio.sleep(0)

    def _move(self, text: str) -> None:
        turn, mood = self.thread.turn, self._random.random()
        content: list[UserInput] = [TextUserInput(text=text)]
        if turn is None or mood < 0.3:
            accepted = self.thread.begin_turn(TurnStartParams(content, self.thread.id))
            self.said.append(text)
            accepted.start()
        elif mood < 0.7:
            self.thread.steer(TurnSteerParams(turn.id, content, self.thread.id))
            self.said.append(text)
        else:
            self.thread.active_turn("interrupt", turn.id).stop()


@pytest.mark.parametrize("seed", range(8))
async def test_every_turn_ends_once_and_every_message_counts_once(home: Path, seed: int) -> None:
    threads = Threads(Store(home), EngineServices(home, EngineSources(models=Moody(seed)), SANDBOX))
    settings = RunSettings(model="scripted", model_provider="scripted", cwd="/")
    thread = threads.start(settings, describe=lambda meta: meta)
    crowd = Crowd(thread, seed)
    async with asyncio.timeout(SECONDS):
        await crowd.act()
        while thread.turn is not None:
            await thread.turn.ended.wait()

    events = [event.params for event in thread.journal.read(0)]
    begun = [each.turn.id for each in events if isinstance(each, TurnStartedNotification)]
    over = [each.turn.id for each in events if isinstance(each, TurnCompletedNotification)]
    turns = await threads.stored.turns(thread)
    published = Counter(
        part.text
        for turn in turns
        for item in turn.items
        if isinstance(item, UserMessageThreadItem)
        for part in item.content
        if isinstance(part, TextUserInput)
    )
    in_history = Counter(
        part["text"]
        for item in thread.context.history.items
        if item.get("role") == "user"
        for part in item["content"]
        if part["text"].startswith("message ")
    )
    assert begun == over == [turn.id for turn in turns]
    assert published == in_history == Counter(crowd.said)
    assert {turn.status for turn in turns} >= {"completed", "interrupted"}
    await threads.close()
    assert await _left_over() == []


async def _left_over() -> list[str]:
    """The tasks that should have ended."""
    await asyncio.sleep(0)
    current = asyncio.current_task()
    return [task.get_name() for task in asyncio.all_tasks() if task is not current]
