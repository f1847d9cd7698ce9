"""Fixtures that more than one folder of tests uses."""

from __future__ import annotations

import gc
import re
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.harness import releases
from tests.harness.golden import SERVERS, Golden
from tests.harness.lines import TRANSPORTS, Connect, SharedServers, connector

# Its assertions say what differs.
pytest.register_assert_rewrite("tests.harness.scenarios")


# Collecting thousands of tests makes objects that stay until the end. To look for garbage among
# them would take half of that time, and as much again during the tests.
gc.disable()

_FOLDERS = count()

# Shells start background jobs with SIGINT ignored, and processes inherit that. With a handler here,
# the programs that tests start have the default disposition.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make record`."""
    words = "record what the reference does into tests/golden, and run nothing else"
    parser.addoption("--record", action="store_true", help=words)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need a release of the reference; keep those that record it."""
    releases.mark(items)
    if config.getoption("--record"):
        others = [item for item in items if "golden" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def pytest_collection_finish() -> None:
    """Enable garbage collection, but only of what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a release of the reference to the other tests."""
    releases.begin(item)


@pytest.fixture
def reference() -> str:
    """The newest release of the reference; a test that requests it has the marker `reference`."""
    return releases.program(releases.NEWEST)


@pytest.fixture(params=SERVERS)
def golden(request: pytest.FixtureRequest) -> Golden:
    """The recordings of the test's file; the test exists for Treadle and for the reference."""
    return Golden(request.path, request.param, request.config.getoption("--record"))


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[SharedServers]:
    """Servers that all tests share, in a folder with a short name: socket paths must be short."""
    with TemporaryDirectory(prefix="treadle-") as folder:
        servers = SharedServers(Path(folder))
        yield servers
        servers.stop()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a name short enough for the path of a socket."""
    with TemporaryDirectory(prefix="treadle-") as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A fresh folder; pytest's own fixture lists all earlier ones and moves a link each time."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{name}_{next(_FOLDERS)}"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A fresh home for a server."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def isolated(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give servers in the test process a fresh home as well."""
    monkeypatch.setenv("TREADLE_HOME", str(home))
    # Login shells read their startup files there.
    monkeypatch.setenv("HOME", str(home))
    for name in ("CODEX_HOME", "TREADLE_LOG", "RUST_LOG", "LOG_FORMAT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=TRANSPORTS)
def connect(request: pytest.FixtureRequest, shared_servers: SharedServers, home: Path) -> Connect:
    """Connects to a server, over each transport in turn."""
    return connector(request.param, shared_servers, home)
