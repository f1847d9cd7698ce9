"""The official Python SDK works in full with our executable in place of Codex's.

A notification that the SDK cannot decode would reach it as unknown: there must be none.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from openai_codex import (
    AsyncCodex,
    Codex,
    CodexConfig,
    ExternalMessage,
    ImageInput,
    InputItem,
    InvalidRequestError,
    LocalImageInput,
    Sandbox,
    SkillInput,
    TextInput,
    TurnHandle,
)
from openai_codex.client import CodexClient
from openai_codex.generated.v2_all import ReviewStartResponse
from openai_codex.models import UnknownNotification
from pydantic import BaseModel

from tests.harness.processes import TREADLE, environment
from tests.harness.scripted import write_script
from treadle.protocol.base import JsonValue

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+hello\n*** End Patch\n"
ASKED_COMMAND = "item/commandExecution/requestApproval"
ASKED_CHANGE = "item/fileChange/requestApproval"


@pytest.fixture(autouse=True)
def sdk_leaks() -> Iterator[None]:
    """The SDK leaves its child's pipes to the garbage collector: collect them here, not later."""
    yield
    gc.collect()


class Place:
    """A home, a workspace, the model's script and the requests that it received."""

    def __init__(self, home: Path, *script: JsonValue) -> None:
        self.home = home
        self.folder = home.parent / "work"
        self.folder.mkdir()
        self._requests = home / "requests"
        self._script = write_script(home / "script.json", script)

    def config(self) -> CodexConfig:
        """The configuration that starts our server in place of the SDK's own."""
        files = {"TREADLE_SCRIPT": self._script, "TREADLE_SCRIPT_REQUESTS": self._requests}
        env = environment(self.home, **{name: str(path) for name, path in files.items()})
        return CodexConfig(codex_bin=TREADLE, cwd=str(self.folder), env=env)

    def requests(self) -> list[JsonValue]:
        """The requests that the model received, in order."""
        return [json.loads(line) for line in self._requests.read_text("utf-8").splitlines()]

    def outputs(self) -> list[JsonValue]:
        """The outputs that the model received for its calls."""
        items = self.requests()[-1]["input"]
        return [item["output"] for item in items if item["type"].endswith("call_output")]


def says(text: str, **more: JsonValue) -> JsonValue:
    return [{"type": "says", "text": text, **more}]


def call(tool: str, arguments: JsonValue) -> JsonValue:
    return [{"type": "calls", "tool": tool, "arguments": arguments, "call_id": "call-1"}]


def escalated(command: str) -> JsonValue:
    asked = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "May I?"}
    return call("exec_command", asked)


def patch() -> JsonValue:
    return [{"type": "custom_call", "tool": "apply_patch", "input": PATCH, "call_id": "call-1"}]


def plain(value: BaseModel) -> JsonValue:
    """A value of the SDK as it was on the wire."""
    return value.model_dump(mode="json", by_alias=True)


def kinds(items: Sequence[BaseModel]) -> list[str]:
    return [plain(item)["type"] for item in items]


def notifications_of(turn: TurnHandle) -> list[tuple[str, JsonValue]]:
    """The methods and params of all notifications of a turn."""
    messages: list[tuple[str, JsonValue]] = []
    for notification in turn.stream():
        assert not isinstance(notification.payload, UnknownNotification), notification
        messages.append((notification.method, plain(notification.payload)))
    return messages


def test_a_run_returns_the_answer_the_items_and_the_usage(home: Path) -> None:
    usage = {"input_tokens": 12, "cached_input_tokens": 4, "output_tokens": 5, "total_tokens": 17}
    thought = {"type": "thinks", "summary": ["**Hm**"], "raw": "raw"}
    steps = [thought, {"type": "says", "text": "hi there"}, {"type": "usage", "usage": usage}]
    place = Place(home, steps)
    with Codex(place.config()) as codex:
        result = codex.thread_start().run("hello")

    assert result.final_response == "hi there"
    assert kinds(result.items) == ["userMessage", "reasoning", "agentMessage"]
    assert result.usage is not None
    assert result.usage.total.total_tokens == 17
    assert (result.status.value, result.error) == ("completed", None)


def test_a_turn_streams_its_answer(home: Path) -> None:
    place = Place(home, says("one two", deltas=["one", " ", "two"]))
    with Codex(place.config()) as codex:
        messages = notifications_of(codex.thread_start().turn("go"))

    deltas = [params["delta"] for method, params in messages if method == "item/agentMessage/delta"]
    assert deltas == ["one", " ", "two"]
    assert (messages[0][0], messages[-1][0]) == ("turn/started", "turn/completed")


def test_it_decodes_commands_and_patches(home: Path) -> None:
    steps = {"plan": [{"step": "look", "status": "in_progress"}]}
    place = Place(
        home,
        call("exec_command", {"cmd": "echo out; ls"}),
        patch(),
        call("update_plan", steps),
        says("done"),
    )
    with Codex(place.config()) as codex:
        thread = codex.thread_start(sandbox=Sandbox.workspace_write, cwd=str(place.folder))
        messages = notifications_of(thread.turn("work"))

    items = [params["item"] for method, params in messages if method == "item/completed"]
    command, change = items[1:3]
    assert (command["type"], command["status"], command["exitCode"]) == (
        "commandExecution",
        "completed",
        0,
    )
    assert (change["type"], change["status"]) == ("fileChange", "completed")
    assert (place.folder / "made.txt").read_text("utf-8") == "hello\n"
    methods = {method for method, _ in messages}
    assert methods >= {"turn/diff/updated", "turn/plan/updated", "item/started"}


@contextmanager
def low_level(place: Place, decision: JsonValue) -> Iterator[tuple[CodexClient, list[str]]]:
    """The SDK's lower-level client, with a handler that gives every request the same answer."""
    asked: list[str] = []

    def answer(method: str, _params: JsonValue) -> dict[str, JsonValue]:
        asked.append(method)
        return {} if decision is None else {"decision": decision}

    client = CodexClient(place.config(), approval_handler=answer)
    client.start()
    try:
        client.initialize()
        yield client, asked
    finally:
        client.close()


def settle(client: CodexClient, place: Place, text: str = "go", **more: JsonValue) -> None:
    """Run one turn in a thread whose approvals the user decides."""
    policy = {"approvalPolicy": "on-request", "approvalsReviewer": "user", "sandbox": "read-only"}
    started = client.thread_start({**policy, "cwd": str(place.folder)})
    turn = client.turn_start(started.thread.id, text, params=more).turn
    client.register_turn_notifications(turn.id)
    client.wait_for_turn_completed(turn.id)


@pytest.mark.parametrize(
    ("decision", "is_done"),
    [("accept", True), ("decline", False), ("cancel", False), (None, False)],
)
@pytest.mark.parametrize(
    ("step", "question"), [(escalated("touch made.txt"), ASKED_COMMAND), (patch(), ASKED_CHANGE)]
)
def test_its_approval_handler_decides(
    home: Path, step: JsonValue, question: str, decision: JsonValue, is_done: bool
) -> None:
    """An empty answer, its reply to unknown requests, does not count."""
    place = Place(home, step, says("done"))
    with low_level(place, decision) as (client, asked):
        settle(client, place)

    assert asked == [question]
    assert (place.folder / "made.txt").exists() == is_done
    assert len(place.requests()) == (1 if decision == "cancel" else 2)


def test_a_server_request_that_it_does_not_answer_ends(home: Path) -> None:
    option = {"label": "Yes", "description": "do"}
    question = {"id": "q", "header": "H", "question": "Q?", "options": [option]}
    place = Place(home, call("request_user_input", {"questions": [question]}), says("done"))
    mode: JsonValue = {"mode": "plan", "settings": {"model": "scripted"}}
    with low_level(place, None) as (client, asked):
        settle(client, place, collaborationMode=mode)

    assert asked == ["item/tool/requestUserInput"]
    assert len(place.outputs()) == 1


def test_structured_output_reaches_the_model_and_is_returned(home: Path) -> None:
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    place = Place(home, says('{"n": 3}'))
    with Codex(place.config()) as codex:
        result = codex.thread_start().run("count", output_schema=schema)

    assert result.final_response == '{"n": 3}'
    assert place.requests()[0]["output_schema"] == schema


def test_images_and_skills_reach_the_model(home: Path) -> None:
    place = Place(home, says("seen"))
    picture, skill = place.folder / "dot.png", home / "skills" / "demo" / "SKILL.md"
    picture.write_bytes(PIXEL)
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: demo\ndescription: d\n---\nBODY\n", "utf-8")
    url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    parts: list[InputItem] = [
        TextInput("look"),
        ImageInput(url),
        LocalImageInput(str(picture)),
        SkillInput("demo", str(skill)),
    ]
    with Codex(place.config()) as codex:
        codex.thread_start().run(parts)

    content = [part for item in place.requests()[0]["input"] for part in item.get("content", [])]
    assert [part["image_url"] for part in content if part["type"] == "input_image"] == [url, url]
    (messages,) = [part["text"] for part in content if part.get("text", "").startswith("<skill>")]
    assert all(text in messages for text in ("<name>demo</name>", f"<path>{skill}</path>", "BODY"))


def test_output_of_another_tool_is_not_shown_as_the_users_text(home: Path) -> None:
    place = Place(home, says("noted"))
    with Codex(place.config()) as codex:
        result = codex.thread_start().run(ExternalMessage("the mailbox", "from outside"))

    assert kinds(result.items) == ["functionCallOutput", "agentMessage"]
    call, output = place.requests()[0]["input"][-2:]
    assert (call["type"], call["name"]) == ("function_call", "the_mailbox")
    assert output == {
        "type": "function_call_output",
        "call_id": call["call_id"],
        "output": "from outside",
    }


def test_output_of_another_tool_joins_the_running_turn(home: Path) -> None:
    place = Place(home, call("exec_command", {"cmd": "sleep 0.2"}), says("noted"))
    with Codex(place.config()) as codex:
        thread = codex.thread_start()
        turn = thread.turn("go")
        joined = thread.turn(ExternalMessage("mailbox", "from outside"))
        assert (joined.id, turn.run().final_response) == (turn.id, "noted")
        (read,) = thread.read(include_turns=True).thread.turns

    # It may arrive before the first model request, or while the command runs.
    assert {*kinds(read.items)} == {
        "userMessage",
        "commandExecution",
        "functionCallOutput",
        "agentMessage",
    }
    assert "from outside" in place.outputs()


def test_output_of_another_tool_cannot_be_mixed_with_other_input(home: Path) -> None:
    """Upstream's texts."""
    place = Place(home)
    output: JsonValue = {"name": "mailbox", "output": "from outside"}
    with low_level(place, None) as (client, _):
        thread_id = client.thread_start({}).thread.id
        with pytest.raises(
            InvalidRequestError, match="`toolOutput` cannot be combined with nonempty `input`"
        ):
            client.turn_start(thread_id, "hello", params={"toolOutput": output})


def test_a_thread_continues_in_another_process(home: Path) -> None:
    place = Place(home, says("first"))
    with Codex(place.config()) as codex:
        thread = codex.thread_start(developer_instructions="Be brief.")
        thread.set_name("Mine")
        thread.run("one")
    with Codex(place.config()) as codex:
        resumed = codex.thread_resume(thread.id)
        read = resumed.read(include_turns=True).thread
        fork = codex.thread_fork(thread.id)
        codex.thread_archive(thread.id)
        archived = codex.thread_list(archived=True).data
        active = codex.thread_list().data
        back = codex.thread_unarchive(thread.id)
        result = codex.thread_resume(back.id).run("two")

    (turn,) = read.turns
    assert kinds(turn.items) == ["userMessage", "agentMessage"]
    assert read.name == "Mine"
    assert [each.id for each in archived] == [thread.id]
    assert [each.id for each in active] == [fork.id]
    assert (back.id, result.final_response) == (thread.id, "first")
    history = json.dumps(place.requests()[-1]["input"])
    assert all(text in history for text in ("Be brief.", "one", "first", "two"))


def test_a_thread_is_compacted(home: Path) -> None:
    place = Place(home, says("first"), says("the notes"), says("second"))
    with Codex(place.config()) as codex:
        thread = codex.thread_start()
        thread.run("one")
        thread.compact()
        while plain(thread.read().thread.status)["type"] != "idle":
            pass  # each look is a round trip
        result = thread.run("two")

    assert result.final_response == "second"
    assert "the notes" in json.dumps(place.requests()[-1]["input"])


def test_turns_are_steered_and_interrupted_right_after_they_start(home: Path) -> None:
    slow: JsonValue = [{"type": "waits", "seconds": 3600}]
    sleepy = call("exec_command", {"cmd": "sleep 0.2"})
    place = Place(home, sleepy, says("steered"), slow, slow)
    with Codex(place.config()) as codex:
        thread = codex.thread_start()
        turn = thread.turn("go")
        assert turn.steer("and this").turn_id == turn.id
        assert turn.run().final_response == "steered"
        # Either may come first: the model request or the interruption.
        for words in ("again", "and again"):
            stopped = thread.turn(words)
            stopped.interrupt()
            assert stopped.run().status.value == "interrupted"

    assert "and this" in json.dumps(place.requests()[1]["input"])


def test_a_review_starts_through_the_lower_level_client(home: Path) -> None:
    place = Place(home, says("All is well."))
    with low_level(place, None) as (client, _):
        thread_id = client.thread_start({"cwd": str(place.folder)}).thread.id
        target: JsonValue = {"type": "custom", "instructions": "look"}
        params = {"threadId": thread_id, "target": target}
        started = client.request("review/start", params, response_model=ReviewStartResponse)
        client.register_turn_notifications(started.turn.id)
        client.wait_for_turn_completed(started.turn.id)
        (turn,) = client.thread_read(thread_id, include_turns=True).thread.turns

    assert {"enteredReviewMode", "exitedReviewMode", "agentMessage"} <= {*kinds(turn.items)}


async def test_threads_stream_in_parallel(home: Path) -> None:
    count = 4
    place = Place(home, *[call("exec_command", {"cmd": "true"})] * count, *[says("done")] * count)
    async with asyncio.timeout(40), AsyncCodex(place.config()) as codex:
        threads = [await codex.thread_start() for _ in range(count)]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run(f"go {at}")) for at, each in enumerate(threads)]
            models = tasks.create_task(codex.models())

    assert [task.result().final_response for task in running] == ["done"] * count
    assert models.result().data


def test_it_decodes_failures(home: Path) -> None:
    place = Place(home, [{"type": "fails", "message": "the model is broken"}])
    with Codex(place.config()) as codex:
        with pytest.raises(RuntimeError, match="the model is broken"):
            codex.thread_start().run("hello")
        with pytest.raises(InvalidRequestError):
            codex.thread_resume("00000000-0000-7000-8000-000000000000")
