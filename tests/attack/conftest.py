"""Fixtures of the attack suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.threads import Stage, staged


@pytest.fixture
async def stage(home: Path) -> AsyncIterator[Stage]:
    """Provide a server in this process and a model on the loopback interface."""
    async with staged(home) as stage:
        yield stage
