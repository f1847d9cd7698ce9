"""Each test that uses `backend` runs under every backend that this machine has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.sandbox import findings, using
from treadle.sandbox.backends.base import Landlock
from treadle.sandbox.backends.selection import Backend


async def _working() -> dict[str, Backend]:
    backends: dict[str, Backend] = {}
    async for finding in findings(landlock_protects=True):
        # A backend that is missing or forbidden here is skipped; one that leaks is a failure.
        assert "let through" not in finding.reason, finding
        if finding.backend is not None:
            backends[finding.name] = finding.backend
    return backends


@pytest.fixture(scope="session")
def working() -> dict[str, Backend]:
    """Return the backends that work here, by name."""
    return asyncio.run(_working())


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest, working: dict[str, Backend]) -> Iterator[Backend]:
    """Provide each backend in turn, used by all commands of the test."""
    if request.param not in working:
        pytest.skip(f"{request.param} does not work here")
    with using(working[request.param]):
        yield working[request.param]


@pytest.fixture
def bubblewrap(working: dict[str, Backend]) -> Iterator[Backend]:
    """Provide namespaces, for what only they can do."""
    if "bubblewrap" not in working:
        pytest.skip("bubblewrap does not work here")
    with using(working["bubblewrap"]):
        yield working["bubblewrap"]


@pytest.fixture
def plain_landlock(working: dict[str, Backend]) -> Iterator[Backend]:
    """Provide Landlock with its default options."""
    if "landlock" not in working:
        pytest.skip("landlock does not work here")
    with using(Landlock()):
        yield Landlock()


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """Return a workspace."""
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder that the user may write and a command may not."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("precious")
    (folder / "folder").mkdir()
    return folder
