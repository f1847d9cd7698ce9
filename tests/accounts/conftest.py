"""Fixtures of the tests about accounts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.accounts.ground import Ground, ground_of
from tests.harness.account_service import AccountService, account_service


@pytest.fixture
async def service() -> AsyncIterator[AccountService]:
    """The services behind a ChatGPT login."""
    async with account_service() as running:
        yield running


@pytest.fixture
async def ground(home: Path, service: AccountService) -> AsyncIterator[Ground]:
    """A home whose servers use the services."""
    async with ground_of(home, service) as made:
        yield made
