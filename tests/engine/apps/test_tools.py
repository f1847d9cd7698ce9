"""Tools of connected apps in threads: which are offered, and how they are called."""

from __future__ import annotations

import pytest

from tests.engine.apps.ground import (
    CALENDAR,
    DEMO,
    AppsGround,
    calls_app,
    developer_texts,
    items_of,
    outputs_of,
    spaces_of,
    statuses_of,
)
from tests.harness.account_service import ACCOUNT
from tests.harness.apps_service import MCP, READS, TOOLS, tool
from tests.harness.items import untimed
from tests.harness.model_server import Reply, calls, completed, created, done, says
from treadle.engine.apps.names import named_tools
from treadle.protocol.base import JsonValue

NATIVE = "gpt-5.5"
"""A model with native tool search."""

ALL = {DEMO: ["search"], CALENDAR: ["_create_event", "_list_events"]}
MANY: list[JsonValue] = [tool(f"demo_task_{n}", "demo", annotations=READS) for n in range(120)]
APPROVED = '[apps.calendar]\ndefault_tools_approval_mode = "approve"\n'


async def test_a_thread_offers_the_tools_of_connected_apps(ground: AppsGround) -> None:
    """Upstream: one namespace for each app; a tool without an app is not offered."""
    client, thread = await ground.thread()
    await client.run(thread)

    (request,) = ground.requests
    assert spaces_of(request) == ALL
    described = {
        each["name"]: each.get("description") for each in request["tools"] if "name" in each
    }
    assert described[CALENDAR] == "Plans days."
    assert described[DEMO] == "Tools for working with Demo App."
    assert [text[:19] for text in developer_texts(request) if "Apps (connectors)" in text] == [
        "<apps_instructions>"
    ]
    assert statuses_of(client) == [("codex_apps", "starting", None), ("codex_apps", "ready", None)]


async def test_a_call_carries_the_login_and_what_the_backend_needs(ground: AppsGround) -> None:
    """Upstream: the item and the `_meta` of the call are those of 0.163.0."""
    arguments = {"text": "x"}
    ground.apps.replies.extend([calls_app(CALENDAR, "_create_event", arguments), says("ok")])
    client, thread = await ground.thread(APPROVED)
    messages = await client.run(thread)

    (started,), (item,) = (
        [untimed(each) for each in items_of(messages, method)]
        for method in ("item/started", "item/completed")
    )
    output = 'google_calendar_create_event {"text": "x"}'
    begun = {
        "type": "mcpToolCall",
        "id": "call-1",
        "server": "codex_apps",
        "tool": "google_calendar_create_event",
        "status": "inProgress",
        "arguments": arguments,
        "appContext": {
            "connectorId": "calendar",
            "linkId": "link-1",
            "resourceUri": "ui://widget/event.html",
            "appName": "Google Calendar",
            "actionName": "create",
        },
        "mcpAppResourceUri": "ui://widget/event.html",
        "mcpAppUi": None,
        "pluginId": None,
        "readOnlyHint": False,
        "result": None,
        "error": None,
        "durationMs": None,
    }
    result = {
        "content": [{"type": "text", "text": output}],
        "structuredContent": None,
        "_meta": None,
    }
    ended = {**begun, "status": "completed", "result": result, "durationMs": item["durationMs"]}
    assert (started, item) == (begun, ended)
    assert outputs_of(ground.requests[1]) == {"call-1": output}
    (call,) = ground.apps.calls
    turn = messages[-1]["params"]["turn"]["id"]
    assert call["_meta"]["_codex_apps"] == {
        "resource_uri": "/calendar/create",
        "contains_mcp_source": True,
        "call_id": "call-1",
        "root_turn_id": turn,
    }
    (head,) = ground.apps.heads_of("tools/call")
    token = ground.stored()["tokens"]["access_token"]
    names = ("authorization", "chatgpt-account-id", "x-openai-product-sku")
    assert [head[name] for name in names] == [f"Bearer {token}", ACCOUNT, "codex"]


async def test_a_model_with_native_search_finds_the_tools_of_apps(ground: AppsGround) -> None:
    """Upstream: they are deferred, however few they are."""
    search = {
        "type": "tool_search_call",
        "call_id": "s-1",
        "execution": "client",
        "status": "completed",
        "arguments": {"query": "list events"},
    }
    found = Reply([created("resp-s"), done(search), completed("resp-s")])
    call = calls_app(CALENDAR, "_list_events", call_id="call-2")
    ground.apps.replies.extend([found, call, says("ok")])
    ground.configure_apps(model=NATIVE)
    client = await ground.client()
    messages = await client.run(await client.start())

    first, second, _ = ground.requests
    assert spaces_of(first) == {}
    (output,) = [each for each in second["input"] if each["type"] == "tool_search_output"]
    (space,) = [each for each in output["tools"] if each["name"] == CALENDAR]
    assert space["tools"][0]["name"] == "_list_events"
    assert [item["status"] for item in items_of(messages)] == ["completed"]


async def test_too_many_tools_are_deferred_for_any_model(ground: AppsGround) -> None:
    """Ours: upstream offers all of them to a model without native tool search."""
    ground.apps.tools = [*TOOLS, *MANY]
    ground.apps.replies.extend(
        [
            calls("tool_search", {"query": "calendar list events"}, "s-1"),
            calls_app(CALENDAR, "_list_events", call_id="call-2"),
            says("ok"),
        ]
    )
    client, thread = await ground.thread()
    messages = await client.run(thread)

    first, second, _ = ground.requests
    assert spaces_of(first) == {}
    assert "_list_events" in spaces_of(second)[CALENDAR]
    assert [item["status"] for item in items_of(messages)] == ["completed"]


@pytest.mark.parametrize(
    ("config", "spaces"),
    [
        ("[apps.calendar]\nenabled = false\n", {DEMO: ["search"]}),
        ("[apps._default]\nenabled = false\n[apps.demo]\n", {DEMO: ["search"]}),
        (
            "[apps.calendar]\nopen_world_enabled = false\n",
            {DEMO: ["search"], CALENDAR: ["_list_events"]},
        ),
        ("[features]\napps = false\n", {}),
    ],
)
async def test_the_configuration_chooses_the_tools(
    ground: AppsGround, config: str, spaces: dict[str, list[str]]
) -> None:
    client, thread = await ground.thread(config)
    await client.run(thread)

    assert spaces_of(ground.requests[0]) == spaces
    assert bool(ground.apps.of_path(MCP)) == ("features" not in config)


async def test_a_changed_configuration_applies_to_loaded_threads(ground: AppsGround) -> None:
    """Ours: without another connection to the backend."""
    client, thread = await ground.thread()
    await client.run(thread)
    edit = {"keyPath": "apps.calendar.enabled", "value": False, "mergeStrategy": "upsert"}
    await client.request("config/batchWrite", {"edits": [edit], "reloadUserConfig": True})
    await client.run(thread)

    assert [spaces_of(each) for each in ground.requests] == [ALL, {DEMO: ["search"]}]
    assert len(ground.apps.heads_of("initialize")) == 1


async def test_a_call_of_a_tool_that_is_not_offered_does_not_reach_the_app(
    ground: AppsGround,
) -> None:
    ground.apps.replies.extend([calls_app(CALENDAR, "_create_event"), says("ok")])
    client, thread = await ground.thread("[apps.calendar]\nenabled = false\n")
    await client.run(thread)
    params = {"threadId": thread, "server": "codex_apps", "arguments": {}}
    refused = [
        await client.refusal("mcpServer/tool/call", {**params, "tool": name})
        for name in ("google_calendar_create_event", "plain", "nothing")
    ]

    assert "unsupported call" in outputs_of(ground.requests[1])["call-1"]
    assert {each.message.split(" for ")[0] for each in refused} == {
        "tool 'google_calendar_create_event' is disabled",
        "tool 'plain' is disabled",
        "tool 'nothing' is disabled",
    }
    assert ground.apps.calls == []


async def test_a_client_calls_a_tool_of_an_app(ground: AppsGround) -> None:
    """Upstream: it decides about approval itself."""
    client, thread = await ground.thread()
    params = {"threadId": thread, "server": "codex_apps", "tool": "search", "arguments": {}}
    answer = await client.request("mcpServer/tool/call", params)

    assert answer["content"] == [{"type": "text", "text": "search {}"}]


@pytest.mark.parametrize("login", [None, {"auth_mode": "apikey", "OPENAI_API_KEY": "sk-1"}])
async def test_without_a_chatgpt_login_there_are_no_apps(
    ground: AppsGround, login: JsonValue
) -> None:
    ground.file.unlink()
    if login is not None:
        ground.store(login)
    client, thread = await ground.thread()
    await client.run(thread)

    assert ground.apps.of_path(MCP) == []
    assert statuses_of(client) == []


async def test_no_configured_server_takes_the_name_of_the_apps(ground: AppsGround) -> None:
    """Upstream: the name is reserved, with and without apps."""
    taken = '[mcp_servers.codex_apps]\ncommand = "/does/not/exist"\n'
    client, thread = await ground.thread(f"[features]\napps = false\n{taken}")
    await client.run(thread)
    other, second = await ground.thread(taken)
    await other.run(second)

    assert statuses_of(client) == []
    assert statuses_of(other)[-1] == ("codex_apps", "ready", None)


async def test_tools_for_pages_are_not_for_models(ground: AppsGround) -> None:
    """Upstream: `_meta.ui.visibility` says who may see a tool, of any server."""
    shown = {"ui": {"visibility": ["app", "model"]}}
    hidden = {"ui": {"visibility": ["app"]}}
    ground.apps.tools = [tool("one", "demo", _meta=shown), tool("two", "demo", _meta=hidden)]
    token = ground.stored()["tokens"]["access_token"]
    client, thread = await ground.thread(
        f'[mcp_servers.own]\nurl = "{ground.apps.url}{MCP}"\n'
        f'http_headers = {{ Authorization = "Bearer {token}" }}\n'
    )
    await client.run(thread)

    (request,) = ground.requests
    assert spaces_of(request) == {DEMO: ["one"]}
    names = [each["name"] for each in request["tools"] if "name" in each]
    assert [name for name in names if name.startswith("mcp__own")] == ["mcp__own__one"]


async def test_instructions_about_apps_can_be_left_out(ground: AppsGround) -> None:
    ground.configure_apps()
    text = (ground.home / "config.toml").read_text("utf-8")
    (ground.home / "config.toml").write_text(f"include_apps_instructions = false\n{text}", "utf-8")
    client = await ground.client()
    await client.run(await client.start())

    (request,) = ground.requests
    assert spaces_of(request) == ALL
    assert not any("apps_instructions" in text for text in developer_texts(request))


async def test_the_status_of_the_server_is_listed(ground: AppsGround) -> None:
    client, thread = await ground.thread()
    await client.run(thread)
    listed = await client.request("mcpServerStatus/list", {"threadId": thread})
    refused = await client.refusal("mcpServer/oauth/login", {"name": "codex_apps"})

    (status,) = listed["data"]
    assert (status["name"], status["authStatus"]) == ("codex_apps", "bearerToken")
    assert sorted(status["tools"]) == [
        "google_calendar_create_event",
        "google_calendar_list_events",
        "search",
    ]
    assert refused.message == "No MCP server named 'codex_apps' found."


def test_names_are_unique_and_short_and_do_not_depend_on_other_tools() -> None:
    """Ours: a collision changes only the names that collide."""
    same = [{"connector_id": each, "connector_name": "Same"} for each in ("one", "two")]
    tools = [
        tool("run", None, _meta=same[0]),
        tool("run", None, _meta=same[1]),
        tool("do it", "demo"),
        tool("do-it", "demo"),
        tool("x" * 200, None, _meta={"connector_id": "long", "connector_name": "y" * 200}),
        tool("mail", None, _meta={"connector_id": "mail", "connector_name": "Mail"}),
        tool("plain", None),
    ]
    named = named_tools(tools)

    pairs = [(each.namespace, each.name) for each in named]
    assert len(set(pairs)) == len(pairs) == 6
    assert all(len(space) + len(name) <= 62 for space, name in pairs)
    assert pairs[-1] == ("mcp__codex_apps__mail", "mail")
    assert [space for space, _ in pairs[2:4]] == [DEMO, DEMO]
    assert {name[:6] for _, name in pairs[2:4]} == {"do_it_"}
    assert named_tools(tools[4:]) == named[4:]


async def test_an_administrator_disables_apps_and_decides_about_approvals(
    ground: AppsGround,
) -> None:
    """Upstream: `[apps]` of `requirements.toml` comes before the user's choice."""
    create = "apps.calendar.tools.google_calendar_create_event"
    (ground.home.parent / "system").mkdir()
    (ground.home.parent / "system" / "requirements.toml").write_text(
        f'[apps.demo]\nenabled = false\n[{create}]\napproval_mode = "prompt"\n', "utf-8"
    )
    ground.apps.replies.extend([calls_app(CALENDAR, "_create_event"), says("ok")])
    client, thread = await ground.thread(
        f'[apps.demo]\nenabled = true\n[{create}]\napproval_mode = "approve"\n',
        approvalPolicy="never",
    )
    messages = await client.run(thread)
    installed = await client.request("app/installed", {})

    assert list(spaces_of(ground.requests[0])) == [CALENDAR]
    assert [item["status"] for item in items_of(messages)] == ["failed"]
    assert [app["enabled"] for app in installed["apps"]] == [True, False]


async def test_an_invalid_requirement_about_apps_starts_no_thread(ground: AppsGround) -> None:
    """Ours: what cannot be enforced is refused."""
    (ground.home.parent / "system").mkdir()
    path = ground.home.parent / "system" / "requirements.toml"
    path.write_text('[apps.demo]\nenabled = "no"\n', "utf-8")
    ground.configure_apps()
    refused = await (await ground.client()).refusal("thread/start", {})

    assert "apps: Expected `bool | null`, got `str`" in refused.message


async def test_clients_switch_apps_on_and_off(ground: AppsGround) -> None:
    """Upstream: `experimentalFeature/enablement/set`, for loaded threads too."""
    client, thread = await ground.thread()
    for on in (False, True):
        await client.request("experimentalFeature/enablement/set", {"enablement": {"apps": on}})
        await client.run(thread)

    assert [bool(spaces_of(each)) for each in ground.requests] == [False, True]
