"""One file per resource, one function per method; each fetches, acts and answers."""

from __future__ import annotations

from treadle.connection.router import Router
from treadle.server.handlers import (
    account,
    collaboration,
    command,
    config,
    feature,
    goal,
    history,
    initialize,
    mcp,
    model,
    review,
    settings,
    terminal,
    thread,
    thread_manage,
    turn,
)
from treadle.server.session import ClientSession


def register(router: Router[ClientSession]) -> None:
    """Add every handler to the server's router."""
    resources = (
        account,
        collaboration,
        command,
        config,
        feature,
        goal,
        history,
        initialize,
        mcp,
        model,
        review,
        settings,
        terminal,
        thread,
        thread_manage,
        turn,
    )
    for resource in resources:
        router.include(resource.router)
