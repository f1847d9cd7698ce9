"""The rules about MCP tools, as plain functions: configuration, names and approval."""

from __future__ import annotations

import pytest

from treadle.engine.mcp.approval import judge
from treadle.engine.mcp.config import ApprovalMode, BadServer, read_server
from treadle.engine.mcp.content import output_of
from treadle.engine.mcp.names import MAX_NAME, model_names
from treadle.engine.settings import RunSettings
from treadle.protocol.base import JsonValue
from treadle.protocol.policy import (
    AskForApproval,
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
)


def settings(policy: AskForApproval, sandbox: SandboxPolicy | None = None) -> RunSettings:
    """The settings of a thread that matter here."""
    return RunSettings(
        model="m",
        model_provider="p",
        cwd="/",
        approval_policy=policy,
        sandbox=sandbox or ReadOnlySandboxPolicy(),
    )


NONE: JsonValue = {}
READS = {"readOnlyHint": True}
HARMS = {"destructiveHint": True}
SAFE = {"destructiveHint": False, "openWorldHint": False}


@pytest.mark.parametrize(
    ("mode", "hints", "verdict"),
    [
        ("auto", NONE, "ask"),
        ("auto", READS, "allow"),
        ("auto", HARMS, "ask"),
        ("auto", SAFE, "allow"),
        ("auto", {**READS, "openWorldHint": True}, "allow"),
        ("auto", {**READS, **HARMS}, "ask"),
        ("auto", {"destructiveHint": False}, "ask"),
        ("auto", {"openWorldHint": False}, "ask"),
        ("prompt", READS, "ask"),
        ("writes", READS, "allow"),
        ("writes", SAFE, "ask"),
        ("approve", HARMS, "allow"),
    ],
)
def test_mode_and_hints_decide_whether_approval_is_needed(
    mode: ApprovalMode, hints: JsonValue, verdict: str
) -> None:
    """As the reference decides it: what a tool does not say of itself is taken for the worst."""
    assert judge(mode, hints, settings("on-request")).verdict == verdict
    alone = "refuse" if verdict == "ask" else "allow"
    assert judge(mode, hints, settings("never")).verdict == alone


@pytest.mark.parametrize(
    "sandbox", [DangerFullAccessSandboxPolicy(), ExternalSandboxSandboxPolicy()]
)
def test_a_policy_without_approvals_and_sandbox_allows_everything(sandbox: SandboxPolicy) -> None:
    assert judge("auto", HARMS, settings("never", sandbox)).verdict == "allow"
    assert judge("auto", HARMS, settings("on-request", sandbox)).verdict == "ask"


@pytest.mark.parametrize(
    ("name", "table", "reason"),
    [
        ("bad name", {"command": "x"}, "Invalid MCP server name 'bad name'"),
        ("a", {}, "invalid transport"),
        ("a", {"command": ""}, "invalid transport"),
        ("a", {"command": "x", "url": "http://y"}, "url is not supported for stdio"),
        ("a", {"command": 5}, "$.command"),
        ("a", {"command": "x", "default_tools_approval_mode": "bogus"}, "bogus"),
        ("a", "text", "invalid configuration"),
    ],
)
def test_an_invalid_server_configuration_is_explained(
    name: str, table: JsonValue, reason: str
) -> None:
    with pytest.raises(BadServer) as refused:
        read_server(name, table)
    assert reason in str(refused.value)


def test_unknown_settings_are_ignored() -> None:
    assert read_server("a", {"command": "x", "brand_new": 1}).command == "x"


def test_a_tool_has_its_own_approval_mode_or_its_servers() -> None:
    server = read_server(
        "a",
        {
            "command": "x",
            "default_tools_approval_mode": "prompt",
            "tools": {"one": {"approval_mode": "approve"}, "two": {}},
        },
    )
    assert [server.approval_mode(tool) for tool in ("one", "two", "three")] == [
        "approve",
        "prompt",
        "prompt",
    ]
    assert read_server("a", {"command": "x"}).approval_mode("one") == "auto"


def test_names_are_plain_where_they_can_be() -> None:
    assert model_names([("a", "b"), ("a.b", "c d")]) == {
        "mcp__a__b": ("a", "b"),
        "mcp__a_b__c_d": ("a.b", "c d"),
    }


def test_names_that_would_be_the_same_are_kept_distinct() -> None:
    names = model_names([("a", "x y"), ("a", "x.y"), ("a", "z")])
    assert set(names.values()) == {("a", "x y"), ("a", "x.y"), ("a", "z")}
    assert {name for name in names if name.startswith("mcp__a__x_y_")} == set(names) - {"mcp__a__z"}


def test_long_names_are_cut_and_stay_apart() -> None:
    tools = [("server", "t" * 80 + end) for end in "ab"]
    names = model_names(tools)
    assert sorted(names.values()) == tools
    assert all(len(name) <= MAX_NAME for name in names)
    assert set(model_names(tools[:1])) < set(names)


def test_long_results_are_truncated_for_the_model() -> None:
    block = {"type": "text", "text": "x" * 100_000}
    output = output_of({"content": [block, block]}, 0.0)
    size = sum(len(part["text"]) for part in output if isinstance(part, dict))
    assert "tokens truncated" in str(output)
    assert size < 50_000


def test_other_content_reaches_the_model_as_json() -> None:
    linked = {"type": "resource_link", "uri": "memo://a", "name": "a"}
    sound = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
    output = output_of({"content": [linked, sound]}, 0.25)
    assert output == [
        {"type": "input_text", "text": "Wall time: 0.2500 seconds\nOutput:"},
        {
            "type": "input_text",
            "text": '{"type":"resource_link","uri":"memo://a","name":"a"}',
        },
        {
            "type": "input_text",
            "text": "<audio content omitted because you do not support audio input>",
        },
    ]
