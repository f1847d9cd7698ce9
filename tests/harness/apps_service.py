"""The services of an account that has connected apps, on the loopback.

Besides the services of `account_service`, its backend has the MCP server with the tools of the
apps, and their directory. Only requests with a valid token are answered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from tests.harness.account_service import (
    AccountService,
    Send,
    ServiceRequest,
    document,
    listening,
)
from tests.harness.model_server import Reply, write_reply
from treadle.protocol.base import JsonValue

MCP = "/backend-api/ps/mcp"
DIRECTORY = "/backend-api/connectors/directory/list"


def tool(
    name: str, connector: str | None = "calendar", title: str | None = None, **fields: JsonValue
) -> JsonValue:
    """A tool of an app, as the MCP server lists it."""
    about: JsonValue = {} if connector is None else dict(CONNECTORS[connector])
    about |= fields.pop("_meta", {})
    return {
        "name": name,
        "description": f"Does {name}.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        **({"title": title} if title is not None else {}),
        **fields,
        **({"_meta": about} if about else {}),
    }


CONNECTORS: dict[str, dict[str, JsonValue]] = {
    "calendar": {
        "connector_id": "calendar",
        "connector_name": "Google Calendar",
        "connector_description": "Plans days.",
    },
    "demo": {"connector_id": "demo", "connector_name": "Demo App"},
}
READS: JsonValue = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
WRITES: JsonValue = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": True}
TOOLS: list[JsonValue] = [
    tool(
        "google_calendar_create_event",
        title="Google Calendar_create_event",
        annotations=WRITES,
        _meta={
            "_codex_apps": {"resource_uri": "/calendar/create", "contains_mcp_source": True},
            "ui": {"resourceUri": "ui://widget/event.html"},
            "link_id": "link-1",
        },
    ),
    tool("google_calendar_list_events", annotations=READS),
    tool("search", "demo", annotations=READS),
    tool("plain", None, annotations=READS),
]


@dataclass
class AppsService(AccountService):
    """Serves the tools of apps to valid tokens."""

    tools: list[JsonValue] = field(default_factory=lambda: list(TOOLS))
    # Tokens that only the MCP server rejects.
    rejected: set[str] = field(default_factory=set)
    # What tools answer, from the params of a call.
    result: Callable[[JsonValue], JsonValue] | None = None
    # What methods of the MCP server answer instead.
    methods: dict[str, Reply | Send] = field(default_factory=dict)
    # The result or the error that methods of the MCP server answer instead, as a part of a message.
    parts: dict[str, JsonValue] = field(default_factory=dict)
    # What an answer to a list of tools waits for.
    gate: asyncio.Event | None = None

    @property
    def calls(self) -> list[JsonValue]:
        """The params of the calls of tools."""
        bodies = self.bodies(MCP)
        return [each["params"] for each in bodies if (each or {}).get("method") == "tools/call"]

    def heads_of(self, method: str) -> list[dict[str, str]]:
        """The headers of requests of a method of the MCP server."""
        requests = self.of_path(MCP)
        return [each.headers for each in requests if (each.body or {}).get("method") == method]

    def fail(self, method: str, answer: Reply | Send | JsonValue) -> None:
        """Answer a method of the MCP server like this; a dict is a part of a message."""
        if isinstance(answer, dict):
            self.parts[method] = answer
        else:
            self.methods[method] = answer

    async def wait_for_method(self, method: str) -> None:
        """Wait until a method of the MCP server was requested."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: bool(self.heads_of(method)))

    def _answer(self, request: ServiceRequest) -> Reply | Send:
        if request.path not in (MCP, DIRECTORY):
            return super()._answer(request)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.valid or token in self.rejected:
            return document({"error": {"code": "token_expired"}}, 401)
        if request.path == DIRECTORY:
            return document({"apps": [{"id": "calendar", "name": "Calendar"}], "nextToken": None})
        if request.method != "POST":
            return document({}, 405)
        return self._mcp(request.body or {})

    def _mcp(self, message: JsonValue) -> Reply | Send:
        method = message.get("method")
        if method in self.methods:
            return self.methods[method]
        if method in self.parts:
            return document({"jsonrpc": "2.0", "id": message["id"], **self.parts[method]})
        answer: JsonValue
        match method:
            case "initialize":
                answer = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "apps", "version": "1"},
                }
            case "tools/list":
                answer = {"tools": self.tools}
            case "tools/call":
                params = message["params"]
                text = f"{params['name']} {json.dumps(params.get('arguments'))}"
                answer = {"content": [{"type": "text", "text": text}]}
                if self.result is not None:
                    answer = self.result(params)
            case _:
                return document({}, 202)
        reply = document({"jsonrpc": "2.0", "id": message["id"], "result": answer})
        if method == "initialize":
            return replace(reply, headers={"mcp-session-id": f"session-{next(self.numbers)}"})
        if method == "tools/list" and self.gate is not None:
            return _after(self.gate, reply)
        return reply


def _after(gate: asyncio.Event, reply: Reply) -> Send:
    """Reply after something has happened."""

    async def send(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await write_reply(writer, reply)

    return send


@asynccontextmanager
async def apps_service() -> AsyncIterator[AppsService]:
    """Listen on a free port until the block ends."""
    async with listening(AppsService()) as service:
        yield service
