"""Clocks that stand still while somebody is asked."""

from __future__ import annotations

import asyncio

import pytest

from treadle.engine.terminals.timeouts import PausableTimeout

SOON = 0.0


async def rounds() -> None:
    """Let everything happen that is due."""
    for _round in range(5):
        await asyncio.sleep(0)


async def wait(patience: PausableTimeout, steps: list[str], *, holds: int) -> None:
    """Wait with no time to spare, for so many questions one in the other, and then on."""
    async with patience.limit(SOON):
        for _hold in range(holds):
            with patience.on_hold(), patience.on_hold():
                await rounds()
        steps.append("answered")
        await rounds()
        steps.append("too late")


async def test_time_that_is_up_is_told() -> None:
    steps: list[str] = []

    with pytest.raises(TimeoutError):
        await wait(PausableTimeout(), steps, holds=0)

    assert steps == ["answered"]


async def test_no_time_runs_out_during_a_question() -> None:
    steps: list[str] = []

    with pytest.raises(TimeoutError):
        await wait(PausableTimeout(), steps, holds=1)

    assert steps == ["answered"]


async def test_a_wait_that_begins_during_a_question_has_its_time_after_it() -> None:
    patience, steps = PausableTimeout(), list[str]()

    async with asyncio.TaskGroup() as tasks:
        with patience.on_hold():
            waiting = tasks.create_task(_expires(patience, steps))
            await rounds()
            steps.append("answered")
        await waiting

    assert steps == ["answered", "expired"]


async def _expires(patience: PausableTimeout, steps: list[str]) -> None:
    with pytest.raises(TimeoutError):
        async with patience.limit(SOON):
            await asyncio.Event().wait()
    steps.append("expired")


async def test_a_wait_without_end_has_none_after_a_question_either() -> None:
    patience = PausableTimeout()

    async with patience.limit(None):
        with patience.on_hold():
            await rounds()
        await rounds()
