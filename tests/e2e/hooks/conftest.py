"""Fixtures for conversations in which hooks run."""

from __future__ import annotations

import pytest

from tests.harness.hooks import Hooks
from tests.harness.threads import Client, Stage


@pytest.fixture
async def client(stage: Stage) -> Client:
    """A client of the stage's server."""
    return await stage.client()


@pytest.fixture
def hooks(stage: Stage, client: Client) -> Hooks:
    """The hooks of the stage's home."""
    return Hooks(stage.home, client)
