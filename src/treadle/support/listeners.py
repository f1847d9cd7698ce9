"""The endpoints on which this process listens, so that commands can be kept away from them."""

from __future__ import annotations

from typing import Final


class Listeners:
    """TCP ports and paths of unix sockets; each `add` needs a `remove`."""

    def __init__(self) -> None:
        self._open: list[int | str] = []

    def add(self, endpoint: int | str) -> None:
        """Add a port or a path on which this process listens."""
        self._open.append(endpoint)

    def remove(self, endpoint: int | str) -> None:
        """Remove one listener of a port or a path."""
        if endpoint in self._open:
            self._open.remove(endpoint)

    @property
    def ports(self) -> frozenset[int]:
        """The TCP ports, on any address."""
        return frozenset(each for each in self._open if isinstance(each, int))

    @property
    def paths(self) -> frozenset[str]:
        """The paths of unix sockets, absolute: as they were given, and with links resolved."""
        return frozenset(each for each in self._open if isinstance(each, str))


OWN_LISTENERS: Final = Listeners()
"""The listeners of this process; code that opens a listening socket adds it."""
