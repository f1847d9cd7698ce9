"""One conversation of valid and invalid messages, over every transport."""

from __future__ import annotations

import json
import re

from tests.harness.lines import Connect
from tests.harness.steps import STEPS
from treadle.protocol.base import JsonValue
from treadle.protocol.client_requests import CLIENT_REQUESTS
from treadle.protocol.legacy import LEGACY_REQUESTS

ADMITTED = "a result, or that the method is not built yet"


def refused(message: str, **data: JsonValue) -> JsonValue:
    return {"code": -32600, "message": message, "data": data}


def invalid(method: str, path: str, message: str) -> JsonValue:
    text = f"Invalid request: {message} in the params of {method}"
    return refused(text, kind="invalidParams", method=method, path=path)


def gated(descriptor: str) -> JsonValue:
    message = f"{descriptor} requires experimentalApi capability"
    return refused(message, kind="experimentalApiRequired", descriptor=descriptor)


def unknown() -> JsonValue:
    names = ", ".join(f"`{name}`" for name in (*CLIENT_REQUESTS, *LEGACY_REQUESTS))
    message = f"Invalid request: unknown variant `foo/bar`, expected one of {names}"
    return refused(message, kind="methodNotFound", method="foo/bar")


START, READ = "thread/start", "thread/read"
INPUTS = "`text`, `image`, `localImage`, `audio`, `localAudio`, `skill`, `mention`"
ANSWERS: dict[JsonValue, JsonValue] = {
    1: refused("Not initialized", kind="notInitialized"),
    2: refused(
        "Invalid request: missing field `params` of initialize",
        kind="invalidParams",
        method="initialize",
        path="",
    ),
    3: invalid("initialize", "clientInfo", "missing field `clientInfo`"),
    4: invalid("initialize", "clientInfo.version", "missing field `version` at `clientInfo`"),
    5: refused(
        "Invalid clientInfo.name: 'bad\rname'. Must be a valid HTTP header value.",
        kind="invalidRequest",
        path="clientInfo.name",
    ),
    7: ADMITTED,
    8: refused("Already initialized", kind="alreadyInitialized"),
    9: unknown(),
    "str-1": unknown(),
    "str-2": ADMITTED,
    77: ADMITTED,
    78: ADMITTED,
    10: refused(
        "Invalid request: missing field `params` of thread/read",
        kind="invalidParams",
        method=READ,
        path="",
    ),
    11: invalid(READ, "threadId", "missing field `threadId`"),
    12: invalid(READ, "threadId", "invalid type at `threadId`: expected `str`, got `int`"),
    13: invalid(START, "cwd", "invalid type at `cwd`: expected `str | null`, got `int`"),
    14: invalid(READ, "", "invalid type: expected `object`, got `array`"),
    15: ADMITTED,
    16: ADMITTED,
    17: ADMITTED,
    18: invalid(
        "turn/start",
        "input[0].type",
        f"unknown variant `nope` at `input[0].type`, expected one of {INPUTS}",
    ),
    19: ADMITTED,
    20: gated("mock/experimentalMethod"),
    21: gated("collaborationMode/list"),
    22: gated("thread/start.dynamicTools"),
    23: gated("thread/start.persistFullHistory"),
    24: gated("thread/start.mockExperimentalField"),
    25: gated("askForApproval.granular"),
    26: ADMITTED,
    27: gated("thread/realtime/start"),
}


async def test_each_message_of_the_handshake_gets_its_expected_answer(connect: Connect) -> None:
    """The conversation of upstream 0.118, with deliberate differences.

    Errors carry `data.kind` and name the method and the path of the field; documented
    spellings are accepted; positional params are rejected. What is not listed is not answered.
    """
    heard: dict[JsonValue, JsonValue] = {}
    async with connect() as peer:
        for step in STEPS:
            for message in await peer.replies(step.frame):
                note(message, heard)
        while len(heard) <= len(ANSWERS):
            note(await peer.receive(), heard)
        for message in await peer.replies():
            note(message, heard)
    about = heard.pop(6)["result"]
    assert {id_: outcome(message) for id_, message in heard.items()} == ANSWERS
    assert sorted(about) == ["codexHome", "platformFamily", "platformOs", "userAgent"]
    agent = r"probe/0\.163\.0 \([^;]+; \w+\) \S+ \(probe; 9\.9\)"
    assert re.fullmatch(agent, about["userAgent"])


def note(message: JsonValue, heard: dict[JsonValue, JsonValue]) -> None:
    if "method" not in message:
        assert message["id"] not in heard, "answered twice"
        heard[message["id"]] = message


def outcome(message: JsonValue) -> JsonValue:
    if "result" in message or message["error"]["data"]["kind"] == "notImplemented":
        return ADMITTED
    return message["error"]


async def test_a_failed_initialize_can_be_repeated(connect: Connect) -> None:
    async with connect() as peer:
        refusal = await peer.request("initialize", {"clientInfo": {"name": "a\nb", "version": "1"}})
        assert refusal["error"]["data"] == {"kind": "invalidRequest", "path": "clientInfo.name"}
        await peer.initialize(experimentalApi=True)
        assert await peer.echo("hello") == "hello"


async def test_requests_work_without_the_initialized_notification(connect: Connect) -> None:
    async with connect() as peer:
        params = {
            "clientInfo": {"name": "x", "version": "1"},
            "capabilities": {"experimentalApi": True},
        }
        assert "result" in await peer.request("initialize", params)
        assert await peer.echo("hello") == "hello"


async def test_clients_can_opt_out_of_known_and_unknown_notifications(connect: Connect) -> None:
    async with connect() as peer:
        await peer.initialize(
            experimentalApi=True, optOutNotificationMethods=["thread/started", "nope/x"]
        )
        assert await peer.echo("hello") == "hello"


async def test_ids_keep_their_type_and_value(connect: Connect) -> None:
    """Ours: integers beyond 64 bits are returned unchanged."""
    ids: list[JsonValue] = [0, -1, 2**53, 2**63 - 1, -(2**63), 2**64 - 1, 2**70, "0", "", "ü\u2028"]
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        await peer.send(
            *({"id": id_, "method": "mock/experimentalMethod", "params": {}} for id_ in ids)
        )
        answers = [await peer.receive() for _ in ids]
        assert answers == [{"id": id_, "result": {"echoed": None}} for id_ in ids]
        assert [type(answer["id"]) for answer in answers] == [type(id_) for id_ in ids]


async def test_two_requests_with_the_same_id_are_both_answered(connect: Connect) -> None:
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        await peer.send(
            *(
                {"id": 5, "method": "mock/experimentalMethod", "params": {"value": value}}
                for value in "ab"
            )
        )
        assert [await peer.receive(), await peer.receive()] == [
            {"id": 5, "result": {"echoed": "a"}},
            {"id": 5, "result": {"echoed": "b"}},
        ]


async def test_params_may_be_omitted_where_all_are_optional(connect: Connect) -> None:
    """Ours: upstream requires `{}`, contrary to its own documentation."""
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        await peer.send(
            {"id": 1, "method": "mock/experimentalMethod"},
            {"id": 2, "method": "mock/experimentalMethod", "params": None},
        )
        assert [await peer.receive(), await peer.receive()] == [
            {"id": 1, "result": {"echoed": None}},
            {"id": 2, "result": {"echoed": None}},
        ]


async def test_a_client_with_the_experimental_capability_may_use_every_method(
    connect: Connect,
) -> None:
    experimental = [step for step in STEPS if step.about.startswith("an experimental")]
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        heard = [answer for step in experimental for answer in await peer.replies(step.frame)]
    kinds = [answer.get("error", {}).get("data", {}).get("kind") for answer in heard]
    assert "experimentalApiRequired" not in kinds
    assert json.dumps({"echoed": None}) in map(json.dumps, (a.get("result") for a in heard))
