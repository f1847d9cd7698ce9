"""What the reference does with tools of apps.

It sends its login for apps to its vendor only, so both servers use `CODEX_CONNECTORS_TOKEN`.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.programs import folder_for_homes
from tests.engine.apps.ground import ASKS, CALENDAR, ELICITATION, calls_app, items_of
from tests.harness.apps_service import TOOLS, AppsService, apps_service, tool
from tests.harness.golden import Golden
from tests.harness.model_server import says
from tests.harness.peer import Peer
from tests.harness.threads import Client, environment
from treadle.protocol.base import JsonValue
from treadle.transport.subprocess import spawn

FIRST = "mcp_optional_startup_grace_ms = 30000\n"
# Ours does not say whether the link is implied.
UNKNOWN = ("threadId", "turnId", "link_is_implicit")
# The times of an item are not in 0.163.0.
TIMES = ("durationMs", "startedAtMs", "completedAtMs")
TABLES = {
    "default": "",
    "disabled": "[apps.calendar]\nenabled = false\n",
    "others disabled": "[apps._default]\nenabled = false\n[apps.calendar]\n",
    "no tools": "[apps.calendar]\ndefault_tools_enabled = false\n",
    "one tool": "[apps.calendar]\ndefault_tools_enabled = false\n"
    "[apps.calendar.tools.google_calendar_list_events]\nenabled = true\n",
    "not destructive": "[apps._default]\ndestructive_enabled = false\n",
    "closed world": "[apps._default]\nopen_world_enabled = false\n"
    "[apps.demo]\nopen_world_enabled = true\n",
    "without the feature": "[features]\napps = false\n",
}


class Play:
    """A server in its own process with the services of an account."""

    def __init__(self, home: Path, service: AppsService, client: Client) -> None:
        self.home = home
        self.service = service
        self.client = client

    def offered(self) -> JsonValue:
        """The tools of apps in the last request to the model, by namespace."""
        spaces = [
            each
            for each in self.service.bodies("/v1/responses")[-1]["tools"]
            if "codex_apps" in each.get("name", "")
        ]
        return {each["name"]: {**each, "tools": _by_name(each["tools"])} for each in spaces}


@asynccontextmanager
async def playing(golden: Golden, more: str = "") -> AsyncIterator[Play]:
    """Run a server in a new home."""
    with TemporaryDirectory(dir=folder_for_homes(), prefix="home-") as place:
        home = Path(place)
        async with apps_service() as service:
            (home / "config.toml").write_text(f"{FIRST}{service.config}{more}", "utf-8")
            login = service.auth_json()
            (home / "auth.json").write_text(json.dumps(login), "utf-8")
            token = {"CODEX_CONNECTORS_TOKEN": login["tokens"]["access_token"]}
            environ = environment(home) | service.environ | token
            transport = spawn((golden.program, "app-server"), cwd=home, env=environ)
            try:
                async with asyncio.timeout(60):
                    client = Client(Peer(transport))
                    await client.initialize()
                    yield Play(home, service, client)
            finally:
                await transport.close()


def _by_name(tools: list[JsonValue]) -> list[JsonValue]:
    return sorted(tools, key=lambda each: str(each["name"]))


def _without(value: JsonValue, *names: str) -> JsonValue:
    """Return a document without these keys."""
    if isinstance(value, dict):
        return {key: _without(each, *names) for key, each in value.items() if key not in names}
    return value


async def test_a_call_is_that_of_the_reference(golden: Golden) -> None:
    """Upstream: names, definitions, the request for approval, the item and the call."""
    async with playing(golden) as play:
        call = calls_app(CALENDAR, "_create_event", {"text": "x"})
        play.service.replies.extend([call, says("ok")])
        thread = await play.client.start(cwd=str(play.home), **ASKS)
        turn = await play.client.start_turn(thread)
        before = await play.client.until(ELICITATION)
        accepted = {"action": "accept", "content": None, "_meta": {"persist": "always"}}
        await play.client.peer.send({"id": before[-1]["id"], "result": accepted})
        after = await play.client.end_of(turn)
        (sent,) = play.service.calls
        (head,) = play.service.heads_of("tools/call")
        meta = sent["_meta"]
        facts = {
            "offered": play.offered(),
            "asked": _without(before[-1]["params"], *UNKNOWN),
            "started": [_without(each, *TIMES) for each in items_of(before, "item/started")],
            "completed": [_without(each, *TIMES) for each in items_of(after)],
            "arguments": sent["arguments"],
            "tool": sent["name"],
            "details": {**meta["_codex_apps"], "root_turn_id": "<turn>"},
            "is this turn": meta["_codex_apps"]["root_turn_id"] == turn,
            "thread": meta["threadId"] == thread,
            "product": head["x-openai-product-sku"],
            "stored": tomllib.loads((play.home / "config.toml").read_text("utf-8"))["apps"],
        }
    golden.check("call", facts)


@pytest.mark.parametrize("name", TABLES)
async def test_the_configuration_chooses_the_tools_of_the_reference(
    golden: Golden, name: str
) -> None:
    """Upstream: each key of `[apps]` and its order."""
    async with playing(golden, TABLES[name]) as play:
        play.service.tools = [*TOOLS, tool("wipe", "demo", annotations={"readOnlyHint": False})]
        await play.client.run(await play.client.start(cwd=str(play.home)))
        offered = play.offered()
    golden.check(
        name, {space: [each["name"] for each in value["tools"]] for space, value in offered.items()}
    )
