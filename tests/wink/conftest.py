"""Fixtures of evaluations with real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.releases import NEWEST

if TYPE_CHECKING:
    from tests.wink.ground import Ground


@pytest.fixture(params=["here", NEWEST])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    """Provide our server, behind a socket, and then the reference, on pipes."""
    from tests.wink.ground import ground

    async with ground(request.param, tmp_path) as made:
        yield made


@pytest.fixture
async def own_ground(tmp_path: Path) -> AsyncIterator[Ground]:
    """Provide our server, for tests that do not depend on the server."""
    from tests.wink.ground import ground

    async with ground("here", tmp_path) as made:
        yield made


@pytest.fixture
async def reference_ground(reference: str, tmp_path: Path) -> AsyncIterator[Ground]:
    """Provide the reference, for what our server does not have yet."""
    from tests.wink.ground import ground

    async with ground(NEWEST, tmp_path) as made:
        yield made
