"""A real MCP server in its own process, built with the official SDK.

`python -m tests.harness.mcp_server stdio | forks`. With `forks`, a line `http PORT` or `oauth PORT`
on stdin starts a server over HTTP in a child, and the answer is a line with its process and its
address: importing the SDK takes longer than most tests. `MCP_LATE` is the start delay in seconds.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import ImageContent, TextContent, ToolAnnotations
from pydantic import AnyHttpUrl, BaseModel

PIXEL = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
READS = ToolAnnotations(read_only_hint=True)
SAFE = ToolAnnotations(destructive_hint=False, open_world_hint=False)
HARMS = ToolAnnotations(destructive_hint=True)


class Name(BaseModel):
    """What the server asks for."""

    name: str


class Sum(BaseModel):
    """A result with a shape."""

    total: int


def add_tools(server: MCPServer) -> None:
    """Add one tool for each case that a client must handle."""

    @server.tool(annotations=READS, structured_output=False)
    def echo(text: str = "") -> str:
        """Say it again."""
        return f"echo: {text}"

    @server.tool(structured_output=False)
    def plain(text: str = "") -> str:
        """Say nothing of what it does."""
        return f"plain: {text}"

    @server.tool(annotations=HARMS, structured_output=False)
    def danger() -> str:
        """Destroy something."""
        return "gone"

    @server.tool(annotations=SAFE, structured_output=False)
    def note() -> str:
        """Write down something."""
        return "noted"

    @server.tool(annotations=READS, structured_output=False)
    def fail() -> str:
        """Fail."""
        raise ToolError("it broke")

    @server.tool(annotations=READS, structured_output=False)
    def environment(name: str) -> str:
        """A variable of the server."""
        return os.environ.get(name, "(not set)")

    @server.tool(annotations=READS, structured_output=False)
    def process() -> str:
        """The number of the server's process."""
        return str(os.getpid())

    @server.tool(annotations=READS)
    def add(a: int, b: int) -> Sum:
        """Add two numbers."""
        return Sum(total=a + b)

    @server.tool(annotations=READS, structured_output=False)
    def picture() -> list[TextContent | ImageContent]:
        """Show a picture."""
        image = ImageContent(type="image", data=PIXEL, mime_type="image/gif")
        return [TextContent(type="text", text="a pixel"), image]

    _add_slow_tools(server)
    _add_questions(server)
    _add_documents(server)


def _add_slow_tools(server: MCPServer) -> None:
    @server.tool(annotations=READS, structured_output=False)
    async def steps(ctx: Context) -> str:
        """Report progress."""
        for step in (1, 2):
            await ctx.report_progress(step, 2, f"step {step}")
        return "done"

    @server.tool(annotations=READS, structured_output=False)
    async def linger(mark: str = "") -> str:
        """Take very long; leaves a file when it has begun."""
        if mark:
            await asyncio.to_thread(Path(mark).touch)
        await asyncio.sleep(60)
        return "at last"

    @server.tool(annotations=READS, structured_output=False)
    def die() -> str:
        """End the server in the middle of a call."""
        sys.stderr.write("I am dying\n")
        sys.stderr.flush()
        os._exit(3)

    @server.tool(annotations=READS, structured_output=False)
    async def grow(ctx: Context) -> str:
        """Get one more tool."""

        def late() -> str:
            """Was not there before."""
            return "late"

        server.add_tool(late, annotations=READS, structured_output=False)
        await ctx.session.send_tool_list_changed()
        return "grown"


def _add_questions(server: MCPServer) -> None:
    @server.tool(annotations=READS, structured_output=False)
    async def ask(ctx: Context) -> str:
        """Ask the user for a name."""
        answer = await ctx.elicit("Name?", Name)
        return f"{answer.action} {answer.data.name if answer.action == 'accept' else ''}".strip()

    @server.tool(annotations=READS, structured_output=False)
    async def ask_url(ctx: Context) -> str:
        """Ask the user to open a page."""
        answer = await ctx.elicit_url("Sign here", "https://example.com/sign", "e-1")
        return answer.action


def _add_documents(server: MCPServer) -> None:
    @server.resource("memo://first", name="first", mime_type="text/plain")
    def first() -> str:
        """The first memo."""
        return "buy milk"

    @server.resource("memo://by/{author}", name="by author", mime_type="text/plain")
    def by(author: str) -> str:
        """The memos of somebody."""
        return f"memos by {author}"


class Doorkeeper(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Accepts every client that follows the protocol; only the newest token is valid."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.newest: AccessToken | None = None
        self.refresh: RefreshToken | None = None

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """Who was registered."""
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Register a client."""
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        """Send the browser back with a code: the user has agreed."""
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 - the SDK's
        authorization_code: str,
    ) -> AuthorizationCode | None:
        """A code that was given out."""
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """Trade a code, once."""
        del self.codes[authorization_code.code]
        return self._issue(str(client.client_id), authorization_code.scopes)

    async def load_refresh_token(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 - the SDK's
        refresh_token: str,
    ) -> RefreshToken | None:
        """The token by which another one is had."""
        is_known = self.refresh is not None and self.refresh.token == refresh_token
        return self.refresh if is_known else None

    async def exchange_refresh_token(
        self,
        client: OAuthClientInformationFull,
        refresh_token: RefreshToken,  # noqa: ARG002 - the SDK's
        scopes: list[str],
    ) -> OAuthToken:
        """Renew a token."""
        return self._issue(str(client.client_id), scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        """Whether a token is the newest."""
        return self.newest if self.newest is not None and self.newest.token == token else None

    async def revoke_token(
        self,
        token: AccessToken | RefreshToken,  # noqa: ARG002 - the SDK's
    ) -> None:
        """Forget a token."""
        self.newest = None

    def _issue(self, client_id: str, scopes: list[str]) -> OAuthToken:
        self.newest = AccessToken(
            token=secrets.token_urlsafe(16), client_id=client_id, scopes=scopes
        )
        self.refresh = RefreshToken(
            token=secrets.token_urlsafe(16), client_id=client_id, scopes=scopes
        )
        return OAuthToken(
            access_token=self.newest.token,
            token_type="Bearer",
            # So soon that it has to be renewed before each use.
            expires_in=5,
            scope=" ".join(scopes),
            refresh_token=self.refresh.token,
        )


def build(url: str | None = None) -> MCPServer:
    """The server, behind a door if it has an address to find the doorkeeper at."""
    door = None
    if url is not None:
        door = AuthSettings(
            issuer_url=AnyHttpUrl(url),
            resource_server_url=AnyHttpUrl(f"{url}/mcp"),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            validate_token_resource=False,
        )
    server: MCPServer = MCPServer(
        "harness",
        instructions="Be kind to this server.",
        version="1.0",
        auth_server_provider=None if door is None else Doorkeeper(),
        auth=door,
    )
    add_tools(server)
    return server


def main() -> None:
    """Serve as the command line says."""
    warnings.simplefilter("ignore")
    time.sleep(float(os.environ.get("MCP_LATE", "0")))
    if sys.argv[1] == "stdio":
        build().run("stdio")
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    children = []
    for line in sys.stdin:
        kind, port = line.split()
        with socket.create_server(("127.0.0.1", int(port))) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            child = os.fork()
            if child == 0:
                _serve(listener, build(url if kind == "oauth" else None))
        children.append(child)
        print(child, f"{url}/mcp", flush=True)  # noqa: T201 - for the parent to read
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _serve(listener: socket.socket, server: MCPServer) -> NoReturn:
    """Serve in a child until it is killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    config = uvicorn.Config(server.streamable_http_app(), log_level="critical")
    uvicorn.Server(config).run(sockets=[listener])
    os._exit(0)


if __name__ == "__main__":
    main()
