"""Accepts connections as fast as descriptors and limits allow.

Not asyncio's own server: without a free descriptor it logs a traceback for each attempt.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

from treadle.support.files.descriptors import is_shortage
from treadle.support.incidents import Incident

BATCH: Final = 64
"""How many connections are accepted before other work gets its turn."""

RETRY_SECONDS: Final = 0.25
# This peer or the network is gone again: the next connection may succeed.
_TRANSIENT: Final = frozenset(
    {
        *(errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.ENOPROTOOPT, errno.EHOSTDOWN),
        *(errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH, errno.ETIMEDOUT),
    }
)

logger = logging.getLogger(__name__)


class Acceptor:
    """Passes accepted sockets on until closed; `delay` returns the seconds to wait before each."""

    def __init__(
        self,
        listening: socket.socket,
        take: Callable[[socket.socket], None],
        delay: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._socket = listening
        self._fd = listening.fileno()
        self._take = take
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._shortage = Incident(logger, "connections wait: descriptors or memory are used up")
        self._loop.add_reader(self._fd, self._on_ready)

    def close(self) -> None:
        """Stop listening."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._fd)
        self._socket.close()

    def _on_ready(self) -> None:
        for _ in range(BATCH):
            if (delay := self._delay()) > 0:
                self._pause(delay)
                return
            try:
                accepted, _address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _TRANSIENT:
                    continue
                if not is_shortage(error):
                    raise
                # The connections stay in the kernel's queue meanwhile.
                self._shortage.happened(str(error))
                self._pause(RETRY_SECONDS)
                return
            accepted.setblocking(False)
            self._take(accepted)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._fd)
        self._timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._fd, self._on_ready)
