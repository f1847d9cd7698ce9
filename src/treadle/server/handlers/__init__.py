"""Request handlers: one file per resource, one function per method.

A resource is imported on first use: most clients need few of them, and all of them together are
most of the server's startup time.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module

from treadle.connection.router import Router
from treadle.server.handlers._table import RESOURCES
from treadle.server.session import ClientSession


def register(router: Router[ClientSession]) -> None:
    """Register the location of every handler with the router."""
    for resource, methods in RESOURCES.items():
        router.include_later(methods, partial(router_of, resource))


def router_of(resource: str) -> Router[ClientSession]:
    """Return the handlers of one file."""
    router: Router[ClientSession] = import_module(f"{__name__}.{resource}").router
    return router
