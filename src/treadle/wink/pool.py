"""An adapter's event loop and its servers."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from treadle.wink.config import CodexAppServerClientConfig
from treadle.wink.loop import LoopThread
from treadle.wink.server import Servers

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_CLOSE_SECONDS: Final = 15.0


class Job(Protocol[T_co]):
    """Work that needs a server."""

    async def run(self, servers: Servers) -> T_co:
        """Run the job."""
        ...


class Pool:
    """The loop and servers of one adapter; the first job starts them, also after `close`."""

    def __init__(self, config: CodexAppServerClientConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._servers: Servers | None = None
        self.loop = LoopThread()

    def submit(self, job: Job[T]) -> Future[T]:
        """Start a job; cancelling the future cancels it."""
        with self._lock:
            if self._servers is None:
                self._servers = Servers(self._config)
            return self.loop.submit(job.run(self._servers))

    def close(self) -> None:
        """End the servers and the loop; running jobs fail."""
        with self._lock:
            servers, self._servers = self._servers, None
            if servers is not None:
                self.loop.submit(servers.close()).result(_CLOSE_SECONDS)
            self.loop.stop()
