"""Writes to the configuration, side by side with the reference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.harness.golden import Golden
from tests.harness.placeholders import placeholders
from tests.harness.scenarios import Scenario, Scene, check
from tests.harness.threads import Refused
from tests.server.reference import ask_reference
from tests.server.serving import configuration, result, serving
from treadle.protocol.base import JsonValue

# It names the field that is meant, for programs.
TREADLE_KEYS = frozenset({".error.data.path", ".error.data.kind"})
# Paths that differ between the servers, and what depends on them.
UNCOMPARED = frozenset({"version", "filePath"})
# Error texts of the parsers; the codes beside them are compared.
PARSED = "Invalid configuration: "


def edit(key_path: str, value: JsonValue, strategy: str = "replace") -> dict[str, JsonValue]:
    return {"keyPath": key_path, "value": value, "mergeStrategy": strategy}


PLAIN = [
    edit("model", "b"),
    edit("model_reasoning_effort", "high"),
    edit("tui.theme", "x"),
    edit("tui", {"notifications": True}, "upsert"),
    edit('projects."/a/b.c".trust_level', "trusted"),
    edit("projects.'/q r'.trust_level", "trusted"),
    edit('projects."a\\"b".trust_level', "untrusted"),
    edit("projects", {"/zz": {"trust_level": "trusted"}}, "upsert"),
    edit("sandbox_workspace_write", {"network_access": True, "writable_roots": ["/x"]}),
    edit("sandbox_workspace_write", {"exclude_slash_tmp": True}, "upsert"),
    edit("sandbox_workspace_write", {"exclude_tmpdir_env_var": True}),
    # No numbers: the reference decodes those in lists differently.
    edit("desktop", {"a": "1", "b": ["x", {"y": "1"}], "e": True, "g": {}, "h": [["1"], ["2"]]}),
    edit("desktop.a", None),
    edit("nope", None),
    edit("nope.x.y", None),
    edit("model.x", None),
    edit("no_such_key", 1),
    edit("unknown.x", {"a": 1}),
    edit("model_provider", "mock_provider", "upsert"),
    edit("mcp_servers.a", {"command": "true", "args": ["1"], "env": {"A": "1"}}),
    edit("mcp_servers", {"a": {"env": {"B": "2"}}}, "upsert"),
    edit("features.unknown_feature", True),
]
BAD_VALUES = [
    edit("approval_policy", "bogus"),
    edit("model", 3),
    edit("sandbox_workspace_write", 3),
    edit("sandbox_workspace_write.network_access", "x"),
    edit("projects.x.trust_level", "maybe"),
    edit("mcp_servers.a", {"x": 1}),
    edit("mcp_servers.a", {"command": 3}),
    edit("model_providers.p", {"name": 3}),
    edit("approval_policy", {"granular": {}}),
]
BAD_EDITS = [
    *(edit(path, 1) for path in ("", " ", "a..b", ".a", "a.", 'a."b', 'a"b"', '"".x', '"a\\')),
    edit("model.x", 1),
    edit("model.x", 1, "upsert"),
    edit("tui", {"theme": None}),
    edit("notify", [None]),
    {**edit("model", "c"), "expectedVersion": "sha256:0"},
    {**edit("", "c"), "expectedVersion": ""},
    {**edit("", "c"), "filePath": "/elsewhere/config.toml", "expectedVersion": ""},
    {**edit("model", "c"), "filePath": "other.toml"},
    {**edit("model", "c"), "filePath": "config.toml"},
]
BATCHES = [
    [],
    [edit("model", "b"), edit("approval_policy", "bogus")],
    [edit("model", "b"), edit("model", "c")],
    [edit("model", "d"), edit("", "c")],
    [edit("tui.a", 1), edit("tui", None)],
]


def writes(*requests: tuple[str, JsonValue]) -> Callable[[Scene], Awaitable[None]]:
    """Return steps that make these writes, and record the answers and the final file."""

    async def steps(scene: Scene) -> None:
        heard = scene.client.received
        for method, params in requests:
            try:
                answer = await scene.client.request(method, params)
            except Refused as refused:
                error = heard[-1]["error"]
                code = refused.data["config_write_error_code"]
                if refused.message.startswith(PARSED):
                    error["message"] = PARSED
                error["message"] += f" {code} {params}"
            else:
                shown = {key: answer[key] for key in sorted(answer.keys() - UNCOMPARED)}
                heard[-1]["answers"] = f"{method} {params} {shown}"
        read = await scene.client.request("config/read", {"includeLayers": True})
        (user,) = [each["config"] for each in read["layers"] if each["name"]["type"] == "user"]
        del user["model_providers"]["mock_provider"]["base_url"]
        # Only the file itself: what else is read from it is compared elsewhere.
        heard[-1]["result"] = {"user": None}
        heard[-1]["answers"] = repr(_sorted(user))

    return steps


def _sorted(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return value


WRITES: dict[str, list[tuple[str, JsonValue]]] = {
    "plain": [("config/value/write", each) for each in PLAIN],
    "bad values": [("config/value/write", each) for each in BAD_VALUES],
    "bad edits": [("config/value/write", each) for each in BAD_EDITS],
    "batches": [("config/batchWrite", {"edits": each}) for each in BATCHES],
}


@pytest.mark.parametrize("name", WRITES)
async def test_writes_are_answered_and_done_as_by_the_reference(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    scenario = Scenario(writes(*WRITES[name]), keys=TREADLE_KEYS, has_events=False)
    await check(golden, name, scenario, tmp_path)


OVERRIDDEN = {
    "another value is overridden": edit("model", "b"),
    "the same value is overridden": edit("model", "f"),
    "a removed value is overridden": edit("model", None),
    "a merged table is overridden": edit("tui", {"theme": "q", "x": 1}, "upsert"),
    "a removed table is overridden": edit("tui", None),
    "a new key of a table is overridden": edit("tui.status_line", ["model"]),
}


@pytest.mark.parametrize("name", OVERRIDDEN)
async def test_both_servers_report_what_a_higher_layer_overrides(
    golden: Golden, home: Path, name: str
) -> None:
    flags = ["model=f", "tui.theme=y"]
    text = 'model = "a"\n[tui]\ntheme = "x"\n'
    request = ("config/value/write", OVERRIDDEN[name])
    if golden.runs_reference:
        (home / "config.toml").write_text(text, "utf-8")
        answer = ask_reference(golden.program, home, *request, flags=flags)
    else:
        async with serving(configuration(home, text, *flags)) as peer:
            answer = await result(peer, *request)

    golden.check(name, placeholders(answer, {str(home): "<home>"}))
