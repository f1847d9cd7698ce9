"""The pytest plugin: `treadle_server`, `treadle_client`, `treadle_process`, `virtual_clock`.

pytest loads it in every run, so the fixtures import their modules on first use. None of them is an
async fixture: they work with pytest-asyncio in either mode, with anyio and without both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Unpack

import pytest

if TYPE_CHECKING:
    from treadle.client.async_client import AsyncClient
    from treadle.client.options import ClientOptions
    from treadle.model.scripted.script import Response, Script, ScriptLike
    from treadle.testing.clock import VirtualClock
    from treadle.testing.process import TreadleProcess
    from treadle.testing.server import TreadleServer


class ServerFactory(Protocol):
    """Runs a server in this process, with a home below `tmp_path`."""

    def __call__(
        self,
        script: ScriptLike | None = None,
        *,
        config: str = "",
        env: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[TreadleServer]:
        """Run a server until the block ends; see `treadle.testing.treadle_server`."""
        ...


class ClientFactory(Protocol):
    """Connects a client to a server in this process."""

    def __call__(
        self,
        script: ScriptLike | None = None,
        *,
        config: str = "",
        **options: Unpack[ClientOptions],
    ) -> AbstractAsyncContextManager[AsyncClient]:
        """Run both until the block ends; `options` are the client's."""
        ...


class ProcessFactory(Protocol):
    """Runs servers as processes, with homes below `tmp_path`; they end with the test."""

    def __call__(
        self,
        script: Script | Sequence[Response] | None = None,
        *,
        config: str = "",
        env: Mapping[str, str] | None = None,
    ) -> TreadleProcess:
        """Prepare a server; it starts when its address is first read."""
        ...


@pytest.fixture
def _treadle_homes(tmp_path: Path) -> Callable[[], Path]:
    numbers = count(1)
    return lambda: tmp_path / f"treadle-home-{next(numbers)}"


@pytest.fixture
def treadle_server(_treadle_homes: Callable[[], Path]) -> ServerFactory:
    """Runs a server in this process: call it with a script and use `async with`."""
    from treadle.testing.server import treadle_server as run

    def serve(
        script: ScriptLike | None = None,
        *,
        config: str = "",
        env: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[TreadleServer]:
        return run(script, config=config, env=env, home=_treadle_homes())

    return serve


@pytest.fixture
def treadle_client(treadle_server: ServerFactory, tmp_path: Path) -> ClientFactory:
    """Runs a server and its client in this process: call it with a script and use `async with`."""
    from treadle.client.async_client import AsyncClient

    @asynccontextmanager
    async def connect(
        script: ScriptLike | None = None,
        *,
        config: str = "",
        **options: Unpack[ClientOptions],
    ) -> AsyncIterator[AsyncClient]:
        options.setdefault("cwd", tmp_path)
        async with (
            treadle_server(script, config=config) as server,
            AsyncClient(server, **options) as client,
        ):
            yield client

    return connect


@pytest.fixture
def treadle_process(_treadle_homes: Callable[[], Path]) -> Iterator[ProcessFactory]:
    """Prepares a server process for a script; use its `command`, `url` or `socket`."""
    from treadle.testing.process import TreadleProcess

    with ExitStack() as stack:

        def prepare(
            script: Script | Sequence[Response] | None = None,
            *,
            config: str = "",
            env: Mapping[str, str] | None = None,
        ) -> TreadleProcess:
            server = TreadleProcess(script, home=_treadle_homes(), config=config, env=env)
            return stack.enter_context(server)

        yield prepare


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """Virtual time for an async test: use `with virtual_clock:`."""
    from treadle.testing.clock import VirtualClock

    return VirtualClock()
