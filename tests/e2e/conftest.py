"""Fixtures for conversations with a whole server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.threads import Stage, staged


@pytest.fixture
async def stage(home: Path) -> AsyncIterator[Stage]:
    """A server in this process and a model on the loopback."""
    async with staged(home) as stage:
        yield stage
