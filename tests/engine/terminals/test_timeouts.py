"""Timeouts that pause while a server request is open."""

from __future__ import annotations

import asyncio

import pytest

from treadle.engine.terminals.timeouts import PausableTimeout

SOON = 0.0


async def rounds() -> None:
    """Let everything happen that is due."""
    for _round in range(5):
        await asyncio.sleep(0)


async def wait(timeout: PausableTimeout, steps: list[str], *, holds: int) -> None:
    """Wait with no time to spare, for so many questions one in the other, and then on."""
    async with timeout.limit(SOON):
        for _hold in range(holds):
            with timeout.paused(), timeout.paused():
                await rounds()
        steps.append("answered")
        await rounds()
        steps.append("too late")


async def test_an_expired_timeout_is_reported() -> None:
    steps: list[str] = []

    with pytest.raises(TimeoutError):
        await wait(PausableTimeout(), steps, holds=0)

    assert steps == ["answered"]


async def test_no_timeout_expires_during_a_server_request() -> None:
    steps: list[str] = []

    with pytest.raises(TimeoutError):
        await wait(PausableTimeout(), steps, holds=1)

    assert steps == ["answered"]


async def test_a_wait_that_starts_during_a_server_request_gets_its_time_afterwards() -> None:
    timeout, steps = PausableTimeout(), list[str]()

    async with asyncio.TaskGroup() as tasks:
        with timeout.paused():
            waiting = tasks.create_task(_expires(timeout, steps))
            await rounds()
            steps.append("answered")
        await waiting

    assert steps == ["answered", "expired"]


async def _expires(timeout: PausableTimeout, steps: list[str]) -> None:
    with pytest.raises(TimeoutError):
        async with timeout.limit(SOON):
            await asyncio.Event().wait()
    steps.append("expired")


async def test_a_wait_without_timeout_stays_so_after_a_server_request() -> None:
    timeout = PausableTimeout()

    async with timeout.limit(None):
        with timeout.paused():
            await rounds()
        await rounds()
