"""Threads with the tools of apps, and what they send."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

from tests.accounts.ground import Ground
from tests.harness.apps_service import AppsService
from tests.harness.model_server import Reply, completed, created, done
from tests.harness.threads import Client, params_of
from treadle.protocol.base import JsonValue

CALENDAR = "mcp__codex_apps__google_calendar"
DEMO = "mcp__codex_apps__demo_app"
ELICITATION = "mcpServer/elicitation/request"
STATUS = "mcpServer/startupStatus/updated"
ASKS = {"approvalPolicy": "on-request"}


class AppsGround(Ground):
    """A home with a login whose account has apps."""

    def __init__(self, home: Path, service: AppsService, stack: AsyncExitStack) -> None:
        super().__init__(home, service, stack)
        self.apps = service

    async def thread(self, more: str = "", **params: JsonValue) -> tuple[Client, str]:
        """Start a server with this configuration, and a thread."""
        self.configure_apps(more)
        self._server = await self.server()
        client = await self.client(self._server)
        return client, await client.start(**params)

    async def joined(self) -> Client:
        """Connect another client to the server of the last thread."""
        return await self.client(self._server)

    async def end(self) -> None:
        """End the server of the last thread."""
        await self._server.close()

    def configure_apps(self, more: str = "", model: str = "m", waits: int = 30_000) -> None:
        """Replace the configuration; tables come last."""
        # A busy machine takes its time to import the SDK.
        first = f'mcp_optional_startup_grace_ms = {waits}\nmodel = "{model}"'
        config = self.service.config.replace('model = "m"', first)
        (self.home / "config.toml").write_text(f"{config}{more}", "utf-8")

    @property
    def requests(self) -> list[JsonValue]:
        """The bodies of the requests to the model."""
        return self.service.bodies("/v1/responses")


def calls_app(space: str, name: str, arguments: JsonValue = None, call_id: str = "call-1") -> Reply:
    """A reply with a call of a tool in a namespace."""
    item = {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "namespace": space,
        "arguments": json.dumps(arguments or {}),
    }
    return Reply([created(f"resp-{call_id}"), done(item), completed(f"resp-{call_id}")])


def spaces_of(request: JsonValue) -> dict[str, list[str]]:
    """The names of the tools of apps that a request offers, by namespace."""
    return {
        tool["name"]: [each["name"] for each in tool["tools"]]
        for tool in request["tools"]
        if tool["type"] == "namespace" and "codex_apps" in tool["name"]
    }


def developer_texts(request: JsonValue) -> list[str]:
    """The texts of the developer in a request."""
    return [
        part["text"]
        for item in request["input"]
        if item.get("role") == "developer"
        for part in item["content"]
    ]


def outputs_of(request: JsonValue) -> dict[str, str]:
    """The outputs of calls in a request, as text without the time that they took."""
    return {
        item["call_id"]: _text(item["output"])
        for item in request["input"]
        if item["type"] == "function_call_output"
    }


def _text(output: JsonValue) -> str:
    return output if isinstance(output, str) else "".join(part["text"] for part in output[1:])


def items_of(messages: list[JsonValue], method: str = "item/completed") -> list[JsonValue]:
    """The calls of MCP tools among messages."""
    items = [params["item"] for params in params_of(messages, method)]
    return [item for item in items if item["type"] == "mcpToolCall"]


def statuses_of(client: Client) -> list[tuple[str, str, str | None]]:
    """The published states of MCP servers."""
    return [
        (params["name"], params["status"], params["error"])
        for params in params_of(client.received, STATUS)
    ]
