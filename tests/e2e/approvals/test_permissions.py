"""The model requests wider permissions; the user grants all, some or none of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.model_server import calls
from tests.harness.questions import answer, question, refuse
from tests.harness.scripted import client_of, playing
from tests.harness.threads import ANSWER, EPILOGUE, Client, Stage, outline, params_of
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import ScriptedModel, custom_call
from treadle.model.scripted.model import calls as scripted_calls
from treadle.model.scripted.script import Response
from treadle.protocol.base import JsonValue

ASK = "item/permissions/requestApproval"
FEATURE = "features.request_permissions_tool = true"
WAITING = {"type": "active", "activeFlags": ["waitingOnApproval"]}
NOTHING = {"permissions": {"network": None, "file_system": None}, "scope": "turn"}
WANTED = {"network": {"enabled": True}, "file_system": {"write": ["/srv/shared"], "read": ["data"]}}


@pytest.fixture
def offered(stage: Stage) -> Stage:
    """A stage whose model may request permissions."""
    stage.configure(FEATURE)
    return stage


async def start(stage: Stage, **params: JsonValue) -> tuple[Client, str]:
    """A client and its thread, with approvals enabled."""
    client = await stage.client()
    cwd = str(stage.workspace)
    return client, await client.start(**{"approvalPolicy": "on-request", "cwd": cwd, **params})


async def granted(
    stage: Stage, client: Client, thread_id: str, reply: JsonValue, wanted: JsonValue = WANTED
) -> JsonValue:
    """Let the model request and the user answer; return the output that the model receives."""
    stage.model.plays(calls("request_permissions", {"permissions": wanted, "reason": "why"}))
    turn_id = await client.start_turn(thread_id)
    await answer(client, await question(client, ASK), reply)
    await client.end_of(turn_id)
    return json.loads(stage.model.requests[-1].outputs()["call-1"])


async def test_the_user_decides_and_the_model_receives_what_was_granted(offered: Stage) -> None:
    client, thread_id = await start(offered)
    arguments = {"permissions": WANTED, "reason": "Select a root"}
    offered.model.plays(calls("request_permissions", arguments))

    turn_id = await client.start_turn(thread_id)
    before = await client.until(ASK)
    grant = {"scope": "turn", "permissions": {"fileSystem": {"write": ["/srv/shared"]}}}
    await answer(client, before[-1], grant)
    after = await client.end_of(turn_id)

    data = str(offered.workspace / "data")
    asked = before[-1]["params"]
    assert asked.pop("startedAtMs") > 0
    assert asked == {
        "threadId": thread_id,
        "turnId": turn_id,
        "itemId": "call-1",
        "environmentId": "local",
        "cwd": str(offered.workspace),
        "reason": "Select a root",
        "permissions": {
            "network": {"enabled": True},
            "fileSystem": {
                "read": [data],
                "write": ["/srv/shared"],
                "entries": [
                    {"path": {"type": "path", "path": data}, "access": "read"},
                    {"path": {"type": "path", "path": "/srv/shared"}, "access": "write"},
                ],
            },
        },
    }
    assert params_of(before, "thread/status/changed")[-1]["status"] == WAITING
    assert outline(after)[-len(ANSWER) - 4 :] == [
        "serverRequest/resolved",
        "thread/status/changed active",
        *ANSWER,
        *EPILOGUE,
    ]
    assert offered.model.requests[-1].outputs()["call-1"] == (
        '{"permissions":{"network":null,"file_system":{"write":["/srv/shared"]}},"scope":"turn"}'
    )


@pytest.mark.parametrize(
    ("reply", "output"),
    [
        ({"permissions": {}}, NOTHING),
        (
            {"permissions": {"network": {"enabled": True}}, "scope": "session"},
            {**NOTHING, "permissions": {"network": {"enabled": True}, "file_system": None}}
            | {"scope": "session"},
        ),
        (
            {"permissions": {"network": {"enabled": True}}, "strictAutoReview": True},
            {
                "permissions": {"network": {"enabled": True}, "file_system": None},
                "scope": "turn",
                "strict_auto_review": True,
            },
        ),
        # A review of every command applies to one turn only.
        (
            {
                "permissions": {"network": {"enabled": True}},
                "scope": "session",
                "strictAutoReview": True,
            },
            NOTHING,
        ),
        # More than was requested is not granted, a part of it is.
        ({"permissions": {"fileSystem": {"write": ["/"]}}}, NOTHING),
        ({"permissions": {"fileSystem": {"write": ["/srv/shared2"]}}}, NOTHING),
        ({"permissions": {"fileSystem": {"write": ["/srv/shared/../other"]}}}, NOTHING),
        (
            {"permissions": {"fileSystem": {"write": ["/srv/shared/sub"]}}},
            {
                "permissions": {"network": None, "file_system": {"write": ["/srv/shared/sub"]}},
                "scope": "turn",
            },
        ),
        (
            {
                "permissions": {
                    "fileSystem": {
                        "entries": [
                            {"path": {"type": "path", "path": "/srv/shared"}, "access": "write"}
                        ]
                    }
                }
            },
            {
                "permissions": {"network": None, "file_system": {"write": ["/srv/shared"]}},
                "scope": "turn",
            },
        ),
        ({"permissions": {"network": {"enabled": False}}}, NOTHING),
        ({"bad": 1}, NOTHING),
    ],
)
async def test_a_grant_can_narrow_the_request_but_never_widen_it(
    offered: Stage, reply: JsonValue, output: JsonValue
) -> None:
    client, thread_id = await start(offered)

    assert await granted(offered, client, thread_id, reply) == output


async def test_an_error_as_the_answer_grants_nothing(offered: Stage) -> None:
    client, thread_id = await start(offered)
    offered.model.plays(calls("request_permissions", {"permissions": WANTED}))

    turn_id = await client.start_turn(thread_id)
    await refuse(client, await question(client, ASK))
    messages = await client.end_of(turn_id)

    assert json.loads(offered.model.requests[-1].outputs()["call-1"]) == NOTHING
    assert outline(messages)[-2:] == EPILOGUE


@pytest.mark.parametrize(
    "policy",
    [
        "never",
        {
            "granular": {
                "sandbox_approval": True,
                "rules": True,
                "mcp_elicitations": True,
                "request_permissions": False,
            }
        },
    ],
)
async def test_nothing_is_granted_where_approvals_are_disabled(
    offered: Stage, policy: JsonValue
) -> None:
    client, thread_id = await start(offered, approvalPolicy=policy)
    offered.model.plays(calls("request_permissions", {"permissions": WANTED}))

    messages = await client.run(thread_id)

    assert ASK not in outline(messages)
    assert json.loads(offered.model.requests[-1].outputs()["call-1"]) == NOTHING


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({"permissions": {}}, "request_permissions requires at least one permission"),
        (
            {"permissions": {"file_system": {"write": []}}},
            "request_permissions requires at least one permission",
        ),
        (
            {"permissions": {"network": {"enabled": True}}, "environment_id": "nope"},
            "unknown turn environment id `nope`",
        ),
        (
            {"permissions": {"macos": {}}},
            (
                "failed to parse function arguments: "
                "Object contains unknown field `macos` - at `$.permissions`"
            ),
        ),
    ],
)
async def test_an_empty_or_unknown_request_is_rejected_without_a_server_request(
    offered: Stage, arguments: JsonValue, output: str
) -> None:
    client, thread_id = await start(offered)
    offered.model.plays(calls("request_permissions", arguments))

    messages = await client.run(thread_id)

    assert ASK not in outline(messages)
    assert offered.model.requests[-1].outputs() == {"call-1": output}


async def test_the_tool_is_offered_only_where_the_feature_is_enabled(stage: Stage) -> None:
    client, thread_id = await start(stage)
    await client.run(thread_id)
    stage.configure(FEATURE)
    _, with_feature = await start(stage)
    await client.request("thread/resume", {"threadId": with_feature})
    await client.run(with_feature)

    has_tool = [
        any(tool.get("name") == "request_permissions" for tool in asked.body["tools"])
        for asked in stage.model.requests
    ]
    assert has_tool == [False, True]


@pytest.mark.parametrize(("scope", "later"), [("turn", False), ("session", True)])
async def test_a_grant_lasts_as_long_as_its_scope(
    offered: Stage, tmp_path: Path, scope: str, later: bool
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    client, thread_id = await start(offered, sandbox="read-only")
    thread = offered.server.threads.get(thread_id)
    wanted = {"file_system": {"write": [str(folder)]}}
    offered.model.plays(calls("request_permissions", {"permissions": wanted}))

    turn_id = await client.start_turn(thread_id)
    asked = await question(client, ASK)
    turn = thread.turn
    assert turn is not None

    def may_write() -> bool:
        return thread.approvals.confinement(turn).may_write(str(folder / "file"))

    before = may_write()
    during: list[bool] = []
    turn.at_end(lambda: during.append(may_write()))
    grant = {"permissions": {"fileSystem": {"write": [str(folder)]}}, "scope": scope}
    await answer(client, asked, grant)
    await client.end_of(turn_id)

    assert (before, during, may_write()) == (False, [True], later)


@pytest.mark.parametrize(
    ("outcome", "output"),
    [
        (
            "allow",
            {
                "permissions": {
                    "network": {"enabled": True},
                    "file_system": {"write": ["/srv/shared"]},
                },
                "scope": "turn",
            },
        ),
        ("deny", NOTHING),
    ],
)
async def test_the_guardian_may_decide_on_the_users_behalf(
    home: Path, outcome: str, output: JsonValue
) -> None:
    verdict = {
        "risk_level": "low",
        "risk_score": 7,
        "user_authorization": "high",
        "rationale": "because",
        "outcome": outcome,
    }
    wanted = {"network": {"enabled": True}, "file_system": {"write": ["/srv/shared"]}}

    def play(request: ModelRequest) -> Response:
        if request.subagent == "guardian":
            return json.dumps(verdict)
        if any("output" in item for item in request.input):
            return "done"
        return scripted_calls("request_permissions", {"permissions": wanted}, call_id="call-1")

    model = ScriptedModel(play)
    async with playing(home, model) as server, client_of(server) as client:
        thread_id = await client.start(
            approvalPolicy="on-request",
            approvalsReviewer="auto_review",
            config={FEATURE.partition(" ")[0]: True},
        )
        heard = await client.run(thread_id)

    assert ASK not in outline(heard)
    (reviewed,) = params_of(heard, "item/autoApprovalReview/completed")
    assert (reviewed["action"]["type"], reviewed["targetItemId"]) == (
        "requestPermissions",
        "call-1",
    )
    assert json.loads(model.requests[-1].input[-1]["output"]) == output


async def test_after_a_strict_grant_each_later_action_of_the_turn_is_reviewed(
    home: Path, tmp_path: Path
) -> None:
    """Even a command that needs no approval; the next turn is not affected."""
    wanted = {"network": {"enabled": True}}
    patch = "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch"
    acts: list[Response] = [
        scripted_calls("exec_command", {"cmd": "true"}),
        custom_call("apply_patch", patch),
    ]
    agent: Iterator[Response] = iter(
        [scripted_calls("request_permissions", {"permissions": wanted}), *acts, "done", acts[0]]
    )

    def play(request: ModelRequest) -> Response:
        if request.subagent == "guardian":
            about = {"risk_level": "low", "outcome": "deny", "rationale": "not now"}
            return json.dumps(about)
        return next(agent, "done")

    async with playing(home, ScriptedModel(play)) as server, client_of(server) as client:
        thread_id = await client.start(
            cwd=str(tmp_path),
            approvalPolicy="on-request",
            sandbox="workspace-write",
            config={FEATURE.partition(" ")[0]: True},
        )
        turn_id = await client.start_turn(thread_id)
        reply = {"permissions": {"network": {"enabled": True}}, "strictAutoReview": True}
        await answer(client, await question(client, ASK), reply)
        strict = await client.end_of(turn_id)
        usual = await client.run(thread_id)

    (params,) = params_of(strict, "autoApprovalReview/strictReviewRequired")
    assert (params["threadId"], params["turnId"]) == (thread_id, turn_id)
    reviewed = params_of(strict, "item/autoApprovalReview/completed")
    assert [each["action"]["type"] for each in reviewed] == ["command", "applyPatch"]
    assert statuses(strict) == {"commandExecution": "declined", "fileChange": "declined"}
    assert not (tmp_path / "made").exists()
    assert "item/autoApprovalReview/started" not in outline(usual)
    assert statuses(usual) == {"commandExecution": "completed"}


def statuses(messages: list[JsonValue]) -> dict[str, str]:
    """How commands and edits ended."""
    items = (params["item"] for params in params_of(messages, "item/completed"))
    return {item["type"]: item["status"] for item in items if "status" in item}
