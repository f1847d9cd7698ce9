"""The endpoints on which this process listens, for those who must keep commands away from them."""

from __future__ import annotations

from typing import Final


class Listeners:
    """TCP ports and paths of unix sockets; one that is opened twice is closed twice."""

    def __init__(self) -> None:
        self._open: list[int | str] = []

    def add(self, endpoint: int | str) -> None:
        """Note a port or a path on which this process listens from now on."""
        self._open.append(endpoint)

    def remove(self, endpoint: int | str) -> None:
        """Forget one listener of a port or a path."""
        if endpoint in self._open:
            self._open.remove(endpoint)

    @property
    def ports(self) -> frozenset[int]:
        """The TCP ports, on whatever address."""
        return frozenset(each for each in self._open if isinstance(each, int))

    @property
    def paths(self) -> frozenset[str]:
        """The paths of unix sockets, absolute: as they were named, and without links."""
        return frozenset(each for each in self._open if isinstance(each, str))


OWN_LISTENERS: Final = Listeners()
"""Those of this process; whoever opens a socket for others to connect to adds it."""
