"""The handshake."""

from __future__ import annotations

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InvalidRequest
from treadle.protocol.client_requests import CLIENT_REQUESTS, INITIALIZE
from treadle.protocol.initialize import InitializeParams, InitializeResponse
from treadle.server.handshake import describe, is_header_value
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(INITIALIZE)
def initialize(ctx: Context[ClientSession], params: InitializeParams) -> InitializeResponse:
    """Record the client's identity, and return the server's."""
    name = params.client_info.name
    if not is_header_value(name):
        # Upstream's text: its clients show it.
        message = f"Invalid clientInfo.name: '{name}'. Must be a valid HTTP header value."
        raise InvalidRequest(message, path="clientInfo.name")
    ctx.session.initialize(params)
    ctx.after_reply(ctx.session.listen)
    about = describe(name, params.client_info.version)
    return InitializeResponse(
        codex_home=about["codexHome"],
        platform_family=about["platformFamily"],
        platform_os=about["platformOs"],
        user_agent=about["userAgent"],
    )
