"""Decoding params: what is accepted, and how the rest is refused."""

from __future__ import annotations

import json

import msgspec
import pytest

from treadle.jsonrpc.errors import InvalidParams
from treadle.jsonrpc.params import decode_params
from treadle.protocol.base import JsonValue
from treadle.protocol.client_requests import CLIENT_REQUESTS
from treadle.protocol.experimental import gated
from treadle.protocol.method import Request

MODES = "`read-only`, `workspace-write`, `danger-full-access`"
INPUTS = "`text`, `image`, `localImage`, `audio`, `localAudio`, `skill`, `mention`"
OF_START, OF_TURN = " in the params of thread/start", " in the params of turn/start"


def read(method: str, params: JsonValue) -> JsonValue:
    """Decode params and return them as they are encoded on the wire."""
    request: Request[object, object] = CLIENT_REQUESTS[method]
    decoded = decode_params(request, msgspec.Raw(json.dumps(params).encode()))
    return json.loads(msgspec.json.encode(decoded))


def refusal(method: str, raw: bytes | None) -> tuple[str, JsonValue]:
    request: Request[object, object] = CLIENT_REQUESTS[method]
    with pytest.raises(InvalidParams) as caught:
        decode_params(request, None if raw is None else msgspec.Raw(raw))
    data = caught.value.data
    assert data == {"kind": "invalidParams", "method": method, "path": data["path"]}
    return caught.value.message, data["path"]


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ({"approvalPolicy": "unlessTrusted"}, {"approvalPolicy": "untrusted"}),
        ({"approvalPolicy": "onRequest"}, {"approvalPolicy": "on-request"}),
        ({"approvalPolicy": "onFailure"}, {"approvalPolicy": "on-failure"}),
        ({"approvalPolicy": "on-failure"}, {"approvalPolicy": "on-failure"}),
        ({"sandbox": "workspaceWrite"}, {"sandbox": "workspace-write"}),
        ({"sandbox": "readOnly"}, {"sandbox": "read-only"}),
        ({"sandbox": "dangerFullAccess"}, {"sandbox": "danger-full-access"}),
        ({"sandbox": "read-only", "unknown": 1}, {"sandbox": "read-only"}),
    ],
)
def test_documented_spellings_mean_the_wire_spelling(value: JsonValue, meant: JsonValue) -> None:
    assert read("thread/start", value) == meant


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ({"mode": "readOnly"}, "readOnly"),
        ({"mode": "workspace-write"}, "workspaceWrite"),
        ({"type": "danger-full-access"}, "dangerFullAccess"),
        ("read-only", "readOnly"),
    ],
)
def test_a_sandbox_policy_may_be_spelled_in_its_older_ways(policy: JsonValue, kind: str) -> None:
    params = {"threadId": "t", "input": [], "sandboxPolicy": policy}
    assert read("turn/start", params)["sandboxPolicy"]["type"] == kind


def test_a_tool_without_a_type_is_a_function() -> None:
    tool = {"name": "t", "description": "d", "inputSchema": {"type": "object"}}
    (read_back,) = read("thread/start", {"dynamicTools": [tool]})["dynamicTools"]
    assert read_back["type"] == "function"


@pytest.mark.parametrize(
    ("method", "raw", "message", "path"),
    [
        ("thread/read", None, "missing field `params` of thread/read", ""),
        (
            "thread/read",
            b"{}",
            "missing field `threadId` in the params of thread/read",
            "threadId",
        ),
        (
            "initialize",
            b'{"clientInfo":{}}',
            "missing field `name` at `clientInfo` in the params of initialize",
            "clientInfo.name",
        ),
        (
            "thread/read",
            b'{"threadId":5}',
            "invalid type at `threadId`: expected `str`, got `int` in the params of thread/read",
            "threadId",
        ),
        (
            "thread/read",
            b"[]",
            "invalid type: expected `object`, got `array` in the params of thread/read",
            "",
        ),
        (
            "thread/start",
            b'{"sandbox":"nope"}',
            f"unknown variant `nope` at `sandbox`, expected one of {MODES}{OF_START}",
            "sandbox",
        ),
        (
            "turn/start",
            b'{"threadId":"x","input":[{"type":"text","text":"a"},{"type":"nope"}]}',
            f"unknown variant `nope` at `input[1].type`, expected one of {INPUTS}{OF_TURN}",
            "input[1].type",
        ),
        (
            "turn/start",
            b'{"threadId":"x","input":[{"type":"text"}]}',
            "missing field `text` at `input[0]` in the params of turn/start",
            "input[0].text",
        ),
    ],
)
def test_a_refusal_names_the_method_the_path_and_what_was_expected(
    method: str, raw: bytes | None, message: str, path: str
) -> None:
    assert refusal(method, raw) == (f"Invalid request: {message}", path)


def test_invalid_utf_8_in_a_string_is_refused() -> None:
    message, path = refusal("thread/read", b'{"threadId":"\xff"}')
    assert message.startswith("Invalid request: not readable as JSON: 'utf-8' codec")
    assert path == ""


def test_a_lone_surrogate_is_refused_by_name() -> None:
    assert refusal("thread/read", b'{"threadId":"\\ud800"}') == (
        "Invalid request: not readable as JSON: a lone surrogate in the params of thread/read",
        "",
    )


def test_an_older_spelling_with_a_bad_value_is_refused_for_the_value() -> None:
    tool = b'{"name":"a","description":"d"}'
    assert refusal("thread/start", b'{"dynamicTools":[' + tool + b"]}") == (
        (
            "Invalid request: missing field `inputSchema` at `dynamicTools[0]` in the params of "
            "thread/start"
        ),
        "dynamicTools[0].inputSchema",
    )


def test_deep_nesting_in_params_is_refused() -> None:
    raw = b'{"threadId":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert refusal("thread/read", raw)[0].startswith("Invalid request: ")


@pytest.mark.parametrize(
    ("method", "params", "descriptors"),
    [
        ("thread/start", {}, []),
        ("thread/start", {"dynamicTools": None}, []),
        ("thread/start", {"dynamicTools": []}, ["thread/start.dynamicTools"]),
        ("thread/start", {"persistExtendedHistory": False}, []),
        ("thread/start", {"persistExtendedHistory": True}, ["thread/start.persistFullHistory"]),
        ("thread/start", {"mockExperimentalField": "x"}, ["thread/start.mockExperimentalField"]),
        ("mock/experimentalMethod", {}, ["mock/experimentalMethod"]),
        ("collaborationMode/list", {}, ["collaborationMode/list"]),
        (
            "thread/start",
            {
                "approvalPolicy": {
                    "granular": {"sandbox_approval": True, "rules": True, "mcp_elicitations": True}
                }
            },
            ["askForApproval.granular"],
        ),
        (
            "account/login/start",
            {"type": "chatgptAuthTokens", "accessToken": "a", "chatgptAccountId": "b"},
            ["account/login/start.chatgptAuthTokens"],
        ),
    ],
)
def test_experimental_methods_fields_and_variants_are_refused_without_the_capability(
    method: str, params: JsonValue, descriptors: list[str]
) -> None:
    request: Request[object, object] = CLIENT_REQUESTS[method]
    decoded = decode_params(request, msgspec.Raw(json.dumps(params).encode()))
    assert list(gated(request, decoded)) == descriptors
