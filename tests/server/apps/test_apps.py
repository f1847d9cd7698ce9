"""`app/list`, `app/installed` and `app/read`, with a backend of ours on the loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.harness.account_service import jwt
from tests.harness.golden import Golden
from tests.harness.peer import Peer
from tests.harness.placeholders import placeholders
from tests.harness.plugins import write_json, write_marketplace, write_plugin
from tests.harness.threads import spawned
from tests.server.serving import client_of, configuration, refusal, result, running, serving
from treadle.model.provider import Bearer
from treadle.protocol.base import JsonValue
from treadle.server.apps.apps import Apps

ALPHA: JsonValue = {
    "id": "alpha",
    "name": " Alpha! ",
    "description": "  ",
    "logoUrl": "https://example.com/alpha.png",
    "labels": {"key": "value", "odd": 5},
    "distributionChannel": "store",
    "branding": {"isDiscoverableApp": True, "category": "Work", "developer": "Someone"},
    "appMetadata": {"categories": ["one"], "version": "1"},
}
PAGES: JsonValue = {
    "": {"apps": [ALPHA, {"id": "alpha", "description": "Later"}], "nextToken": "p 2"},
    "p 2": {
        "apps": [
            {"id": "beta", "name": "Beta App", "description": "Other", "branding": 5},
            {"id": "hidden", "name": "Hidden", "visibility": "HIDDEN"},
            {"name": "without id"},
            7,
        ]
    },
}
TOOLS: JsonValue = [
    {
        "name": "alpha_search",
        "inputSchema": {"type": "object"},
        "_meta": {"connector_id": "alpha", "connector_name": "Alpha Connection"},
    },
    {"name": "plain", "inputSchema": {"type": "object"}},
    {
        "name": "gamma_do",
        "inputSchema": {"type": "object"},
        "_meta": {"connector_id": "gamma", "connector_name": "Gamma"},
    },
]


class Backend:
    """Answers like the backend of an account, and keeps the heads of requests."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.raw: Callable[[str], bytes | None] | None = None
        self.pages = PAGES
        self.was_asked = asyncio.Event()
        self.url = ""

    def asked(self) -> list[str]:
        """Return the first lines of the requests since the last call."""
        lines = [head.split(" HTTP")[0] for head in self.heads]
        self.heads.clear()
        return lines

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            size = next(
                (
                    int(line.split(":")[1])
                    for line in head.split("\r\n")
                    if line.lower().startswith("content-length")
                ),
                0,
            )
            body = await reader.readexactly(size)
            self.heads.append(head)
            self.was_asked.set()
            reply = self._reply(head, body)
            if reply is None:
                await reader.read()
            else:
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _reply(self, head: str, body: bytes) -> bytes | None:
        path = head.split()[1]
        if self.raw is not None and "/ps/mcp" not in path:
            return self.raw(path)
        if "/connectors/directory/list?" in path:
            token = unquote(path.partition("token=")[2].partition("&")[0])
            return _answer(self.pages[token])
        if path.endswith("/ps/apps/batch"):
            ids = json.loads(body)["app_ids"]
            known: JsonValue = {
                "id": "alpha",
                "name": "Alpha",
                "description": "Details",
                "tool_summaries": [{"name": "search", "description": "Find", "is_read_only": True}],
            }
            return _answer({"apps": [known] if "alpha" in ids else []})
        if path.endswith("/ps/mcp"):
            return self._mcp(json.loads(body) if body else {})
        return _answer({}, "404 Not Found")

    def _mcp(self, message: JsonValue) -> bytes:
        match message.get("method"):
            case "initialize":
                answer: JsonValue = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "apps", "version": "1"},
                }
            case "tools/list":
                answer = {"tools": TOOLS}
            case _:
                return _answer(None, "202 Accepted")
        return _answer({"jsonrpc": "2.0", "id": message["id"], "result": answer})


def _answer(value: JsonValue, status: str = "200 OK") -> bytes:
    body = b"" if value is None else json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


DEEP: JsonValue = []
for _ in range(150):
    DEEP = [DEEP]


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    """Return a backend on the loopback."""
    ours = Backend()
    server = await asyncio.start_server(ours.serve, "127.0.0.1", 0)
    ours.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/backend-api"
    yield ours
    server.close()


@asynccontextmanager
async def signed_in(home: Path, backend: Backend, text: str = "") -> AsyncIterator[Peer]:
    """Run a server that is signed in with ChatGPT, and yield a client."""
    there = configuration(home, f'chatgpt_base_url = "{backend.url}"\n{text}')

    async def login(_rejected: Bearer | None) -> Bearer:
        return Bearer(token="secret-token", account_id="account-1")

    async with running(there) as server:
        services = server.threads.services
        server.apps = Apps(there, services, lambda: server.active_plugins, login)
        async with client_of(server) as peer:
            yield peer


async def ask(peer: Peer, method: str, params: JsonValue = None) -> JsonValue:
    """Return the answer to a request, or its error; notifications are left out."""
    await peer.send({"id": "x", "method": method, "params": params or {}})
    while (message := await peer.receive()).get("id") != "x":
        pass
    return message.get("result", message.get("error"))


async def ask_for_list(peer: Peer, params: JsonValue = None) -> tuple[JsonValue, list[JsonValue]]:
    """Return the answer to `app/list`, and the published lists up to the same one."""
    await peer.send({"id": "x", "method": "app/list", "params": params or {}})
    updates: list[JsonValue] = []
    answer: JsonValue = None
    while answer is None or answer["data"] not in updates:
        message = await peer.receive()
        if message.get("id") == "x":
            answer = message["result"]
        elif message["method"] == "app/list/updated":
            updates.append(message["params"]["data"])
    return answer, updates


def app(**fields: JsonValue) -> JsonValue:
    names = (
        "appMetadata branding description distributionChannel iconAssets iconDarkAssets"
        " installUrl labels logoUrl logoUrlDark"
    )
    common = {"isAccessible": False, "isEnabled": True, "pluginDisplayNames": []}
    return {**dict.fromkeys(names.split()), **common, **fields}


ALPHA_LISTED = app(
    id="alpha",
    name="Alpha!",
    description="Later",
    distributionChannel="store",
    installUrl="https://chatgpt.com/apps/alpha/alpha",
    labels={"key": "value"},
    logoUrl="https://example.com/alpha.png",
    isAccessible=True,
    branding={
        "isDiscoverableApp": True,
        "category": "Work",
        "developer": "Someone",
        "privacyPolicy": None,
        "termsOfService": None,
        "website": None,
    },
    appMetadata={
        **dict.fromkeys(
            "developer firstPartyRequiresInstall firstPartyType review screenshots seoDescription"
            " showInComposerWhenUnlinked subCategories versionId versionNotes".split()
        ),
        "categories": ["one"],
        "version": "1",
    },
)
BETA_LISTED = app(
    id="beta",
    name="Beta App",
    description="Other",
    installUrl="https://chatgpt.com/apps/beta-app/beta",
)


async def test_without_a_login_there_are_no_apps(home: Path) -> None:
    """Upstream: empty answers, and every id is missing."""
    async with serving(configuration(home)) as peer:
        listed = await result(peer, "app/list", {"cursor": "x"})
        installed = await result(peer, "app/installed")
        read = await result(peer, "app/read", {"appIds": ["a", "b", "a"]})

    assert listed == {"data": [], "nextCursor": None}
    assert installed == {"apps": []}
    assert read == {"apps": [], "missingAppIds": ["a", "b"]}


async def test_answers_are_those_of_the_reference(
    golden: Golden, home: Path, backend: Backend
) -> None:
    """With a login that either program has stored."""
    # A damaged entry fails the whole list there.
    beta = {"id": "beta", "name": "Beta App", "description": "Other"}
    hidden = {"id": "hidden", "name": "Hidden", "visibility": "HIDDEN"}
    alpha = {**ALPHA, "labels": {"key": "value"}}
    again = {"id": "alpha", "name": "Again", "description": "Later"}
    backend.pages = {
        "": {"apps": [alpha, again], "nextToken": "p 2"},
        "p 2": {"apps": [beta, hidden], "nextToken": None},
    }
    claims = {"chatgpt_account_id": "account-1", "chatgpt_plan_type": "pro"}
    token = jwt({"exp": 4102444800, "email": "a@b.c", "https://api.openai.com/auth": claims})
    names = ("id_token", "access_token", "refresh_token")
    tokens = {**dict.fromkeys(names, token), "account_id": "account-1"}
    login = {"auth_mode": "chatgpt", "tokens": tokens, "last_refresh": "2099-01-01T00:00:00Z"}
    write_json(home / "auth.json", login)
    text = f'chatgpt_base_url = "{backend.url}"\n[apps.beta]\nenabled = false\n'
    write_json(home / "config.toml", text)
    steps: list[tuple[str, JsonValue]] = [
        ("app/list", {}),
        ("app/list", {"limit": 1}),
        ("app/list", {"cursor": "1"}),
        ("app/list", {"forceRefetch": True, "limit": 0}),
        ("app/list", {"cursor": "9"}),
        ("app/installed", {}),
        ("app/read", {"appIds": ["none", "alpha", "none"]}),
        ("app/read", {"appIds": []}),
    ]
    seen: list[JsonValue] = []
    async with spawned([golden.program, "app-server"], home) as client:
        for method, params in steps:
            answer = await ask(client.peer, method, params)
            answer.pop("data" if "code" in answer else "", None)
            seen.append([method, params, answer])

    golden.check("answers", placeholders(seen), _alike)


def _alike(recorded: JsonValue, ours: JsonValue) -> None:
    """Compare, but for what 0.163.0 does not have."""
    for _, _, answer in (*recorded, *ours):
        for app in answer.get("data", []):
            (app["appMetadata"] or {}).pop("firstPartyType", None)
    for mine, theirs in zip(ours, recorded, strict=True):
        assert mine == theirs


async def test_both_sources_are_merged(home: Path, backend: Backend) -> None:
    """Upstream: connected apps come first; one that the directory lacks is not listed."""
    text = "[apps.beta]\nenabled = false\n"
    plugin = write_plugin(home / "plugins" / "cache" / "shop" / "mail" / "local", {"name": "mail"})
    write_json(plugin / ".app.json", {"apps": {"x": {"id": "beta"}}})
    text += '[plugins."mail@shop"]\nenabled = true\n'
    async with signed_in(home, backend, text) as peer:
        answer, updates = await ask_for_list(peer)

    beta = {**BETA_LISTED, "isEnabled": False, "pluginDisplayNames": ["mail"]}
    assert answer == {"data": [ALPHA_LISTED, beta], "nextCursor": None}
    assert updates[-1] == answer["data"]
    directory = [head for head in backend.heads if "directory" in head]
    assert [head.split()[1] for head in directory] == [
        "/backend-api/connectors/directory/list?external_logos=true",
        "/backend-api/connectors/directory/list?external_logos=true&token=p%202",
    ]
    assert all("authorization: bearer secret-token" in head.lower() for head in directory)
    assert all("chatgpt-account-id: account-1" in head.lower() for head in directory)


async def test_what_was_loaded_is_kept_until_a_refetch(home: Path, backend: Backend) -> None:
    """Upstream: a kept list is published once more."""
    async with signed_in(home, backend) as peer:
        await ask_for_list(peer)
        backend.asked()
        again, updates = await ask_for_list(peer)
        asked = backend.asked()
        backend.pages = {"": {"apps": [{"id": "new", "name": "New"}]}}
        fresh, changed = await ask_for_list(peer, {"forceRefetch": True})
        refetched = backend.asked()

    assert (asked, [len(each) for each in updates]) == ([], [2])
    assert [each["id"] for each in again["data"]] == ["alpha", "beta"]
    assert [each["id"] for each in fresh["data"]] == ["new"]
    assert changed[-1] == fresh["data"]
    assert any("directory" in line for line in refetched)
    assert any("/ps/mcp" in line for line in refetched)


async def test_a_failed_refetch_keeps_what_was_loaded(home: Path, backend: Backend) -> None:
    """Upstream: entries are replaced only when a refetch succeeds."""
    async with signed_in(home, backend) as peer:
        await ask(peer, "app/list")
        backend.raw = lambda _path: _answer({}, "500 Oh")
        error = await ask(peer, "app/list", {"forceRefetch": True})
        backend.raw = None
        after = await ask(peer, "app/list")

    where = backend.url.removesuffix("/backend-api")
    assert error["message"] == f"failed to list apps: {where} answered with status 500"
    assert error["data"]["kind"] == "appsUnavailable"
    assert [each["id"] for each in after["data"]] == ["alpha", "beta"]


async def test_apps_are_listed_in_pages(home: Path, backend: Backend) -> None:
    async with signed_in(home, backend) as peer:
        first = await ask(peer, "app/list", {"limit": 1})
        second = await ask(peer, "app/list", {"limit": 1, "cursor": first["nextCursor"]})
        bad = await ask(peer, "app/list", {"cursor": "x"})
        beyond = await ask(peer, "app/list", {"cursor": "9"})

    assert [each["id"] for each in (*first["data"], *second["data"])] == ["alpha", "beta"]
    assert second["nextCursor"] is None
    assert (bad["message"], beyond["message"]) == (
        "invalid cursor: x",
        "cursor 9 exceeds total apps 2",
    )


async def test_a_thread_decides_whether_there_are_apps(home: Path, backend: Backend) -> None:
    """Upstream: the feature of the thread counts, not that of the configuration."""
    async with signed_in(home, backend, "[features]\napps = false\n") as peer:
        started = await ask(peer, "thread/start", {"config": {"features.apps": True}})
        with_thread = await ask(peer, "app/list", {"threadId": started["thread"]["id"]})
        without = await ask(peer, "app/list")
        unknown = await ask(peer, "app/list", {"threadId": "none"})

    assert [each["id"] for each in with_thread["data"]] == ["alpha", "beta"]
    assert without == {"data": [], "nextCursor": None}
    assert unknown["code"] == -32600


@pytest.mark.parametrize(
    ("config", "alpha", "gamma"),
    [
        ("", (True, True), (True, True)),
        ("[apps._default]\nenabled = false\n", (False, False), (False, False)),
        ("[apps.alpha]\ndefault_tools_enabled = false\n", (False, True), (True, True)),
        ("[apps._default]\nopen_world_enabled = false\n", (False, True), (False, True)),
        ("[apps.alpha]\nenabled = 'odd'\n", (False, False), (True, True)),
    ],
)
async def test_an_app_is_callable_if_threads_have_one_of_its_tools(
    home: Path, backend: Backend, config: str, alpha: tuple[bool, bool], gamma: tuple[bool, bool]
) -> None:
    """Upstream; a table that cannot be read disables its app here, and is ignored there."""
    async with signed_in(home, backend, config) as peer:
        answer = await ask(peer, "app/installed")

    assert answer["apps"] == [
        {"callable": can, "enabled": on, "id": name, "runtimeName": title}
        for name, title, (can, on) in (
            ("alpha", "Alpha Connection", alpha),
            ("gamma", "Gamma", gamma),
        )
    ]


async def test_apps_of_a_plugin_are_described_with_whether_they_need_a_login(
    home: Path, tmp_path: Path, backend: Backend
) -> None:
    """Upstream: `plugin/read` describes them, `plugin/install` names those to sign in to."""
    folder = write_plugin(tmp_path / "shop" / "plugins" / "mail")
    apps = {"a": {"id": "alpha", "category": "Work"}, "b": {"id": "unknown"}}
    write_json(folder / ".app.json", {"apps": apps})
    path = write_marketplace(tmp_path / "shop", ["mail"])
    params: JsonValue = {"marketplacePath": str(path), "pluginName": "mail"}
    async with signed_in(home, backend) as peer:
        read = await ask(peer, "plugin/read", params)
        installed = await ask(peer, "plugin/install", params)
        listed = await ask(peer, "app/list")
        backend.raw = lambda _path: b""
        unreachable = await ask(peer, "plugin/read", params)
    async with serving(configuration(home)) as peer:
        signed_out = await ask(peer, "plugin/read", params)

    alpha = {
        "id": "alpha",
        "name": "Alpha",
        "category": "Work",
        "description": "Details",
        "installUrl": "https://chatgpt.com/apps/alpha/alpha",
        "needsAuth": False,
    }
    unknown = {
        "id": "unknown",
        "name": "unknown",
        "category": None,
        "description": None,
        "installUrl": "https://chatgpt.com/apps/unknown/unknown",
        "needsAuth": True,
    }
    assert read["plugin"]["apps"] == [alpha, unknown]
    assert installed["appsNeedingAuth"] == [unknown]
    names = {each["id"]: each["pluginDisplayNames"] for each in listed["data"]}
    assert names == {"alpha": ["mail"], "beta": [], "unknown": ["mail"]}
    assert [each["name"] for each in unreachable["plugin"]["apps"]] == ["alpha", "unknown"]
    assert signed_out["plugin"]["apps"] == []


async def test_details_of_apps_come_in_the_order_of_the_request(
    home: Path, backend: Backend
) -> None:
    params: JsonValue = {"appIds": ["none", "alpha", "none"], "includeTools": True}
    async with signed_in(home, backend) as peer:
        answer = await ask(peer, "app/read", params)
        nothing = await ask(peer, "app/read", {"appIds": []})

    assert nothing == {"apps": [], "missingAppIds": []}
    assert answer["missingAppIds"] == ["none"]
    (alpha,) = answer["apps"]
    assert (alpha["id"], alpha["description"]) == ("alpha", "Details")
    assert alpha["installUrl"] == "https://chatgpt.com/apps/alpha/alpha"
    assert [(each["name"], each["isReadOnly"]) for each in alpha["toolSummaries"]] == [
        ("search", True)
    ]


@pytest.mark.parametrize(
    ("params", "code"),
    [({"appIds": ["x"] * 101}, -32602), ({"appIds": ["x" * 257]}, -32600), ({}, -32600)],
)
async def test_too_many_or_too_long_ids_are_refused(
    home: Path, params: JsonValue, code: int
) -> None:
    """Upstream: the code and the limit of ids."""
    async with serving(configuration(home)) as peer:
        error = await refusal(peer, "app/read", params)

    assert error["code"] == code


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (b"\x00garbage", "cannot be reached"),
        (b"", "cannot be reached"),
        (_answer([]), "answered something else than a JSON object"),
        (_answer({}, "401 No"), "answered with status 401"),
        (b"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "302"),
        (_answer({"apps": "x" * (4 * 1024 * 1024)}), "sent more than 4194304 bytes"),
        (_answer({"apps": DEEP}), "answered something else"),
    ],
)
async def test_a_backend_that_answers_garbage_fails_the_request(
    home: Path, backend: Backend, reply: bytes, problem: str
) -> None:
    backend.raw = lambda _path: reply
    async with signed_in(home, backend) as peer:
        listed = await ask(peer, "app/list")
        read = await ask(peer, "app/read", {"appIds": ["x"]})

    for error in (listed, read):
        assert (error["code"], error["data"]["kind"]) == (-32603, "appsUnavailable")
        assert "secret-token" not in json.dumps(error)
    assert problem in listed["message"]


async def test_a_directory_without_end_is_cut(home: Path, backend: Backend) -> None:
    backend.raw = lambda path: _answer({"apps": [{"id": path, "name": "x"}], "nextToken": "more"})
    async with signed_in(home, backend) as peer:
        answer = await ask(peer, "app/list")

    assert len(answer["data"]) == 2
    assert len([line for line in backend.asked() if "directory" in line]) == 50


async def test_a_request_for_apps_holds_up_no_other(home: Path, backend: Backend) -> None:
    backend.raw = lambda _path: None
    async with signed_in(home, backend) as peer:
        await peer.send({"id": "slow", "method": "app/list", "params": {}})
        await backend.was_asked.wait()
        answer = await ask(peer, "plugin/list")

    assert answer["marketplaces"] == []
