"""The messages of a handshake, valid and invalid, in the order in which they are sent."""

from __future__ import annotations

import json
from typing import NamedTuple

from treadle.protocol.base import JsonValue


class Step(NamedTuple):
    """One message to the server, and what it is about."""

    about: str
    frame: bytes


def step(about: str, document: JsonValue) -> Step:
    """A step that is well-formed JSON."""
    return Step(about, json.dumps(document).encode())


def call(id_: int | str, method: str, params: JsonValue) -> JsonValue:
    """A request with params."""
    return {"method": method, "id": id_, "params": params}


_PROBE = {"name": "probe", "title": "Probe", "version": "9.9"}
_TOOL = {"name": "t", "description": "d", "inputSchema": {"type": "object"}}
_GRANULAR = {"granular": {"sandbox_approval": True, "rules": True, "mcp_elicitations": True}}

STEPS = [
    step("a request before initialize", call(1, "thread/list", {})),
    step("initialized before initialize", {"method": "initialized"}),
    step("initialize without params", {"method": "initialize", "id": 2}),
    step("initialize without clientInfo", call(3, "initialize", {})),
    step("initialize without a version", call(4, "initialize", {"clientInfo": {"name": "x"}})),
    step(
        "initialize with a name that is not a header value",
        call(5, "initialize", {"clientInfo": {"name": "bad\rname", "version": "1"}}),
    ),
    step("initialize", call(6, "initialize", {"clientInfo": _PROBE})),
    step("a request before initialized", call(7, "thread/loaded/list", {})),
    step("initialized", {"method": "initialized"}),
    step("initialize again", call(8, "initialize", {"clientInfo": _PROBE})),
    step("an unknown method", call(9, "foo/bar", {"x": 1})),
    step("an unknown method with a string id", {"id": "str-1", "method": "foo/bar"}),
    step("a string id", call("str-2", "thread/loaded/list", {})),
    step("a jsonrpc member", {"jsonrpc": "2.0", **call(77, "thread/loaded/list", {})}),
    step("a trace member", {**call(78, "thread/loaded/list", {}), "trace": {"traceparent": None}}),
    step("no params where they are needed", {"method": "thread/read", "id": 10}),
    step("a missing field", call(11, "thread/read", {})),
    step("a number for an id", call(12, "thread/read", {"threadId": 5})),
    step("a number for a folder", call(13, "thread/start", {"cwd": 5})),
    step("params as an array", call(14, "thread/read", ["x"])),
    step("an unknown field", call(15, "thread/loaded/list", {"nope": 1})),
    step(
        "the documented spelling of an approval policy",
        call(16, "thread/start", {"approvalPolicy": "unlessTrusted"}),
    ),
    step(
        "the documented spelling of a sandbox mode",
        call(17, "thread/start", {"sandbox": "workspaceWrite"}),
    ),
    step(
        "an unknown kind of input",
        call(18, "turn/start", {"threadId": "x", "input": [{"type": "nope"}]}),
    ),
    Step("no JSON", b"{not json"),
    Step("an empty line", b""),
    step("an array", [1, 2]),
    step("a number", 5),
    step("an object of nothing known", {"foo": 1}),
    step("an id alone", {"id": 1}),
    step("a null id", {"id": None, "method": "thread/loaded/list"}),
    step("a fraction as id", call(1, "thread/loaded/list", {}) | {"id": 1.5}),
    step("an answer to nothing", {"id": 999, "result": {}}),
    step("a refusal of nothing", {"id": 998, "error": {"code": -1, "message": "x"}}),
    step("an unknown notification", {"method": "unknown/notification", "params": {}}),
    step("a good request after all that", call(19, "thread/loaded/list", {})),
    step("an experimental method", call(20, "mock/experimentalMethod", {})),
    step("another experimental method", call(21, "collaborationMode/list", {})),
    step("an experimental field", call(22, "thread/start", {"dynamicTools": [_TOOL]})),
    step("an experimental flag", call(23, "thread/start", {"persistExtendedHistory": True})),
    step("an experimental text", call(24, "thread/start", {"mockExperimentalField": "x"})),
    step("an experimental variant", call(25, "thread/start", {"approvalPolicy": _GRANULAR})),
    step("an experimental field that is null", call(26, "thread/start", {"dynamicTools": None})),
    step(
        "an experimental method with params",
        call(27, "thread/realtime/start", {"threadId": "x", "prompt": "p"}),
    ),
]
