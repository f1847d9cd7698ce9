"""Fixtures of tests that hold a client against a server which plays a scenario."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.client import scenarios
from tests.client.fake import TRANSPORTS, Heard, reach
from treadle.client.async_client import AsyncClient

Reach = Callable[..., AbstractAsyncContextManager[tuple[AsyncClient, Heard]]]

# They register themselves when they are imported.
assert scenarios.HUGE


@pytest.fixture(params=TRANSPORTS)
def server(request: pytest.FixtureRequest, short_folder: Path) -> Reach:
    """Gives a client of a server that plays a scenario, over each transport in turn."""
    return partial(reach, request.param, short_folder)


@pytest.fixture
def in_memory(short_folder: Path) -> Reach:
    """The same in this process only, for what no transport changes."""
    return partial(reach, "memory", short_folder)
