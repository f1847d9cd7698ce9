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


@pytest.fixture
def outside(home: Path) -> Path:
    """Return a folder that no command may write."""
    folder = home.parent / "outside"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(home: Path) -> Path:
    """Return a folder that commands may write."""
    folder = home.parent / "workspace"
    folder.mkdir()
    return folder
