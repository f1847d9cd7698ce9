"""A server that is signed in with an account that has connected apps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.engine.apps.ground import AppsGround
from tests.harness.apps_service import AppsService, apps_service


@pytest.fixture
async def service() -> AsyncIterator[AppsService]:
    """Return the services of the account."""
    async with apps_service() as service:
        yield service


@pytest.fixture
async def ground(home: Path, service: AppsService) -> AsyncIterator[AppsGround]:
    """Return a home with a stored login; no server is running yet."""
    async with AsyncExitStack() as stack:
        ground = AppsGround(home, service, stack)
        ground.store(service.auth_json())
        yield ground
