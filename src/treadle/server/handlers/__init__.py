"""One file per resource, one function per method; each fetches, acts and answers."""

from __future__ import annotations

from treadle.connection.router import Router
from treadle.server.handlers import feature, initialize
from treadle.server.session import ClientSession


def register(router: Router[ClientSession]) -> None:
    """Add every handler to the server's router."""
    for resource in (feature, initialize):
        router.include(resource.router)
