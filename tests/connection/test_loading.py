"""Handlers that are loaded at their first use, and failures to load them."""

from __future__ import annotations

import errno

import pytest

from tests.connection.methods import BACK, ECHO, Methods, TextParams, TextResponse, line, router
from treadle.connection.context import Context
from treadle.jsonrpc.errors import RpcError


def handlers() -> Methods:
    """Return a router with one handler."""
    new_router = router()

    @new_router.request(ECHO)
    def echo(_ctx: Context[str], params: TextParams) -> TextResponse:
        return TextResponse(params.text)

    return new_router


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.EMFILE, "Too many open files"),
        ImportError("libx.so: cannot open shared object file: Too many open files"),
        MemoryError(),
        RuntimeError("anything"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_failed_loading_is_answered_and_the_next_request_retries(
    failure: Exception,
) -> None:
    failures = [failure]

    def load() -> Methods:
        if failures:
            raise failures.pop()
        return handlers()

    far = router()
    far.include_later([ECHO.method], load)
    async with line(far) as both:
        with pytest.raises(RpcError, match="internal error"):
            await both.near.request(ECHO, TextParams("a"))
        assert await both.near.request(ECHO, TextParams("b")) == TextResponse("b")
        with pytest.raises(RpcError, match="not implemented"):
            await both.near.request(BACK, TextParams())
