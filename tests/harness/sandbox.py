"""One sandbox for all tests of a process: each new one would be tested before its first command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from treadle.sandbox.backends import probe
from treadle.sandbox.backends.probe import ProbeResult
from treadle.sandbox.backends.selection import Backend
from treadle.sandbox.sandbox import Sandbox


class SharedSandbox(Sandbox):
    """A sandbox whose backend a test can replace."""

    @contextmanager
    def using(self, backend: Backend | None) -> Iterator[None]:
        """Use this backend for a while; with `None`, select again."""
        before, self._backend = self._backend, backend
        try:
            yield
        finally:
            self._backend = before


SANDBOX = SharedSandbox()
find_backend = SANDBOX.find_backend
using = SANDBOX.using


def findings(*, landlock_protects: bool = False) -> AsyncIterator[ProbeResult]:
    """Test each backend of this machine."""
    return probe.findings(SANDBOX.launcher, landlock_protects=landlock_protects)
