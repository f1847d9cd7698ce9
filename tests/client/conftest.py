"""Fixtures that connect a client to a server which plays a scenario."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.client import scenarios
from tests.client.fake import TRANSPORTS, ServerLog, reach
from treadle.client.async_client import AsyncClient

Reach = Callable[..., AbstractAsyncContextManager[tuple[AsyncClient, ServerLog]]]

# The scenarios register themselves on import.
assert scenarios.HUGE


@pytest.fixture(params=TRANSPORTS)
def server(request: pytest.FixtureRequest, short_folder: Path) -> Reach:
    """Return a factory of clients and scenario servers, over each transport in turn."""
    return partial(reach, request.param, short_folder)


@pytest.fixture
def in_memory(short_folder: Path) -> Reach:
    """Return the same in this process only, for tests that do not depend on the transport."""
    return partial(reach, "memory", short_folder)
