"""Code reviews (transcripts, review/start).

Known differences: one id names the turn everywhere, `turn/started` included; the reviewer's own
message, which is JSON, is not shown; what is not in the repository is refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.repositories import repository
from tests.harness.scripted import client_of, playing
from tests.harness.threads import (
    ANSWER,
    EPILOGUE,
    FAILURE,
    Client,
    outline,
    params_of,
    text_input,
    words,
)
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import ScriptedModel, calls, fails, says, usage, waits_for
from treadle.model.scripted.script import Response
from treadle.protocol.base import JsonValue
from treadle.server.server import Server

CURRENT: JsonValue = {"type": "uncommittedChanges"}
PLACE = {"absolute_file_path": "/ws/a.txt", "line_range": {"start": 1, "end": 2}}
FINDING = {"title": "Prefer X", "body": "Because.", "code_location": PLACE}
FOUND = json.dumps({"findings": [FINDING], "overall_explanation": "Looks mostly fine."})
REPORT = "Looks mostly fine.\n\nReview comment:\n\n- Prefer X — /ws/a.txt:1-2\n  Because."
ENTERED = ["item/started enteredReviewMode", "item/completed enteredReviewMode"]
EXITED = ["item/started exitedReviewMode", "item/completed exitedReviewMode"]


class Reviewed:
    """A server whose reviewer plays one script and whose agent always says the same."""

    def __init__(self) -> None:
        self.answers: list[Response] = []
        self.model = ScriptedModel(self._play)

    def _play(self, request: ModelRequest) -> Response:
        return self.answers.pop(0) if request.subagent == "review" else "understood"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return repository(tmp_path / "ws")


@pytest.fixture
def reviewed() -> Reviewed:
    return Reviewed()


@pytest.fixture
async def server(home: Path, reviewed: Reviewed) -> AsyncIterator[Server]:
    async with playing(home, reviewed.model) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with client_of(server) as client:
        yield client


async def begin(client: Client, thread_id: str, target: JsonValue, **more: JsonValue) -> JsonValue:
    return await client.request("review/start", {"threadId": thread_id, "target": target, **more})


def items(messages: list[JsonValue], kind: str) -> list[JsonValue]:
    done = (params["item"] for params in params_of(messages, "item/completed"))
    return [item for item in done if item["type"] == kind]


async def test_a_review_is_a_turn_whose_id_is_the_same_everywhere(
    client: Client, reviewed: Reviewed, workspace: Path
) -> None:
    thread_id = await client.start(cwd=str(workspace))
    reviewed.answers = [[FOUND, usage(10, 5)]]
    answer = await begin(client, thread_id, CURRENT, delivery="inline")
    turn_id = answer["turn"]["id"]
    messages = await client.end_of(turn_id)

    label = {"type": "text", "text": "current changes", "text_elements": []}
    message = {"type": "userMessage", "id": turn_id, "clientId": None, "content": [label]}
    assert (answer["reviewThreadId"], answer["turn"]["items"]) == (thread_id, [message])
    assert outline(messages) == [
        "thread/status/changed active",
        "turn/started",
        *ENTERED,
        "item/started userMessage",
        "item/completed userMessage",
        "thread/tokenUsage/updated",
        *EXITED,
        *ANSWER[:2],
        *EPILOGUE,
    ]
    ids = {params["turnId"] for params in params_of(messages, "item/completed")}
    assert ids | {params_of(messages, "turn/started")[0]["turn"]["id"]} == {turn_id}
    assert items(messages, "enteredReviewMode")[0]["review"] == "current changes"
    assert items(messages, "exitedReviewMode")[0]["review"] == REPORT
    assert [item["text"] for item in items(messages, "agentMessage")] == [REPORT]


async def test_the_reviewer_has_a_separate_conversation_and_its_own_tools(
    client: Client, reviewed: Reviewed, workspace: Path
) -> None:
    thread_id = await client.start(cwd=str(workspace))
    await client.run(thread_id, "a secret of the thread")
    reviewed.answers = [calls("update_plan", {"plan": []}, call_id="p1"), FOUND]
    turn = (await begin(client, thread_id, CURRENT))["turn"]
    messages = await client.end_of(turn["id"])
    first, second = [request for request in reviewed.model.requests if request.subagent]

    assert "turn/plan/updated" in outline(messages)
    assert "a secret of the thread" not in json.dumps(list(first.input))
    assert "You review changes" in first.instructions
    names = {tool["name"] for tool in first.tools}
    assert names == {"exec_command", "write_stdin", "view_image", "update_plan"}
    assert second.input[-1] == {
        "type": "function_call_output",
        "call_id": "p1",
        "output": "Plan updated",
    }


async def test_later_turns_know_the_findings_but_not_the_review(
    client: Client, reviewed: Reviewed, workspace: Path, server: Server
) -> None:
    thread_id = await client.start(cwd=str(workspace))
    reviewed.answers = [calls("update_plan", {"plan": []}), [FOUND, usage(90_000, 5)]]
    await client.end_of((await begin(client, thread_id, CURRENT))["turn"]["id"])
    # What the reviewer read takes no room in the thread's own context.
    assert server.threads.get(thread_id).usage.fill == 0
    await client.run(thread_id, "fix it")
    seen = json.dumps(list(reviewed.model.requests[-1].input), ensure_ascii=False)

    assert json.dumps(REPORT, ensure_ascii=False) in seen
    assert "function_call" not in seen
    assert words(await client.read(thread_id))[0][1:] == [
        reviewed.model.requests[0].input[-1]["content"][0]["text"],
        "exitedReviewMode",
        REPORT,
    ]


async def test_a_reviewer_that_answers_in_plain_text_is_quoted(
    client: Client, reviewed: Reviewed, workspace: Path
) -> None:
    thread_id = await client.start(cwd=str(workspace))
    reviewed.answers = ["not json at all"]
    turn = (await begin(client, thread_id, {"type": "custom", "instructions": "Check"}))["turn"]
    messages = await client.end_of(turn["id"])

    assert items(messages, "enteredReviewMode")[0]["review"] == "Check"
    assert items(messages, "exitedReviewMode")[0]["review"] == "not json at all"


async def test_a_detached_review_runs_in_a_copy_of_the_thread(
    client: Client, reviewed: Reviewed, workspace: Path
) -> None:
    """As in 0.118; 0.163 refuses it."""
    thread_id = await client.start(cwd=str(workspace))
    await client.run(thread_id, "hello")
    reviewed.answers = [FOUND]
    answer = await begin(client, thread_id, CURRENT, delivery="detached")
    messages = await client.end_of(answer["turn"]["id"])
    copy_id = answer["reviewThreadId"]
    started = params_of(messages, "thread/started")[0]["thread"]

    assert (started["id"], started["forkedFromId"]) == (copy_id, thread_id)
    assert items(messages, "exitedReviewMode")[0]["review"] == REPORT
    assert {params["threadId"] for params in params_of(messages, "item/completed")} == {copy_id}
    assert len((await client.read(thread_id))["turns"]) == 1
    assert len((await client.read(copy_id))["turns"]) == 2


async def test_a_review_cannot_be_steered_and_is_interrupted_by_the_id_it_returned(
    client: Client, reviewed: Reviewed, workspace: Path
) -> None:
    """0.163 knows the turn by another id than the one it returned; ours is one."""
    thread_id = await client.start(cwd=str(workspace))
    reviewed.answers = [[says("so far"), waits_for(asyncio.Event())]]
    turn_id = (await begin(client, thread_id, CURRENT))["turn"]["id"]
    await client.until("item/completed", lambda params: params["item"]["type"] == "userMessage")
    steer = {"threadId": thread_id, "expectedTurnId": turn_id}
    steered = await client.refusal(
        "turn/steer", {**steer, "input": [{"type": "text", "text": "x"}]}
    )
    second = await client.refusal("review/start", {"threadId": thread_id, "target": CURRENT})
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    messages = await client.end_of(turn_id)

    assert (steered.kind, steered.message) == (
        "activeTurnNotSteerable",
        "cannot steer a review turn",
    )
    assert second.message == f"thread {thread_id} has an active turn"
    assert outline(messages) == [
        *EXITED,
        *ANSWER[:2],
        "thread/status/changed idle",
        "turn/completed interrupted",
    ]
    text = "The review was interrupted before the reviewer had finished."
    assert items(messages, "exitedReviewMode")[0]["review"] == text


async def test_a_review_that_fails_leaves_review_mode(
    client: Client, reviewed: Reviewed, workspace: Path
) -> None:
    thread_id = await client.start(cwd=str(workspace))
    reviewed.answers = [fails("no such model", info="badRequest")]
    turn_id = (await begin(client, thread_id, CURRENT))["turn"]["id"]
    messages = await client.end_of(turn_id)

    assert outline(messages)[-5:] == [*EXITED, *FAILURE]
    assert items(messages, "exitedReviewMode")[0]["review"] == "The review failed: no such model"
    assert outline(await client.run(thread_id, "go on"))[-2:] == EPILOGUE


async def test_an_invalid_review_target_is_rejected_and_the_thread_stays_free(
    client: Client, tmp_path: Path
) -> None:
    thread_id = await client.start(cwd=str(tmp_path))
    target: JsonValue = {"type": "baseBranch", "branch": "main"}
    refused = await client.refusal("review/start", {"threadId": thread_id, "target": target})

    assert (refused.code, refused.kind) == (-32600, "invalidParams")
    assert refused.message == f"{tmp_path} is not inside a git repository"
    assert outline(await client.run(thread_id, "go on"))[-2:] == EPILOGUE


async def test_the_configured_model_reviews(
    client: Client, reviewed: Reviewed, workspace: Path, home: Path
) -> None:
    (home / "config.toml").write_text('review_model = "gpt-5.4-mini"\n', "utf-8")
    thread_id = await client.start(cwd=str(workspace), model="gpt-5.4")
    reviewed.answers = [FOUND]
    await client.end_of((await begin(client, thread_id, CURRENT))["turn"]["id"])
    await client.run(thread_id, "go on")

    assert [request.model for request in reviewed.model.requests] == ["gpt-5.4-mini", "gpt-5.4"]


async def test_a_review_is_refused_while_a_turn_runs_unless_it_is_detached(
    home: Path, workspace: Path
) -> None:
    answering = asyncio.Event()

    def play(request: ModelRequest) -> Response:
        return FOUND if request.subagent == "review" else [waits_for(answering), "answered"]

    model = ScriptedModel(play)
    async with playing(home, model) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(workspace))
        turn_id = await client.start_turn(thread_id)
        params = {"threadId": thread_id, "target": CURRENT}
        refused = await client.refusal("review/start", params)
        begun = await client.request("review/start", {**params, "delivery": "detached"})
        messages = await client.end_of(begun["turn"]["id"])
        answering.set()
        await client.end_of(turn_id)

    assert refused.message == f"thread {thread_id} has an active turn"
    assert messages[-1]["params"]["turn"]["status"] == "completed"


async def test_a_running_review_takes_no_second_message(home: Path, workspace: Path) -> None:
    done = asyncio.Event()
    async with (
        playing(home, ScriptedModel([[waits_for(done), FOUND]])) as server,
        client_of(server) as client,
    ):
        thread_id = await client.start(cwd=str(workspace))
        params = {"threadId": thread_id, "target": CURRENT}
        turn_id = (await client.request("review/start", params))["turn"]["id"]
        message = {"threadId": thread_id, "input": [text_input("also this")]}
        refused = await client.refusal("turn/start", message)
        done.set()
        await client.end_of(turn_id)

    assert refused.kind == "activeTurnNotSteerable"
