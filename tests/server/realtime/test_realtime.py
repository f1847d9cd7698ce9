"""`thread/realtime/*` with a service on the loopback and a model that does its tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.model_server import says
from tests.harness.realtime_service import RealtimeService, realtime_service
from tests.harness.threads import Client, Stage, staged
from treadle.protocol.base import JsonValue
from treadle.server.realtime import delegation
from treadle.server.realtime import session as realtime_session

KEY = "sk-do-not-show-0123456789"


@dataclass
class Scene:
    """A server, a client with a thread, and a realtime service."""

    stage: Stage
    client: Client
    service: RealtimeService
    thread_id: str

    async def request(self, name: str, **params: JsonValue) -> JsonValue:
        """Make a request for the thread."""
        params = {"threadId": self.thread_id, **params}
        return await self.client.request(f"thread/realtime/{name}", params)

    async def start(self, **params: JsonValue) -> JsonValue:
        """Start a conversation, and return the notification."""
        await self.request("start", prompt="Be nice.", outputModality="audio", **params)
        return await self.until("started")

    async def until(self, name: str) -> JsonValue:
        """Return the params of the next realtime notification of a name."""
        return (await self.client.until(f"thread/realtime/{name}"))[-1]["params"]


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("REALTIME_KEY", KEY)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(30))
        service = await stack.enter_async_context(realtime_service())
        stage = await stack.enter_async_context(staged(tmp_path / "home"))
        stage.configure(f'experimental_realtime_ws_base_url = "{service.url}"\n')
        client = await stage.client(experimentalApi=True)
        thread_id = await client.start(cwd=str(stage.workspace))
        yield Scene(stage, client, service, thread_id)


# -- the session


@pytest.mark.parametrize(
    ("version", "target"),
    [
        ("v1", "/v1/realtime?intent=quicksilver&model=gpt-realtime-1.5"),
        ("v2", "/v1/realtime?model=gpt-realtime-1.5"),
    ],
)
async def test_a_session_begins_when_the_service_accepts_it(
    scene: Scene, version: str, target: str
) -> None:
    """Upstream: address, headers and the first message."""
    started = await scene.start(version=version)

    (update,) = await scene.service.wait_for(1)
    assert started == {
        "threadId": scene.thread_id,
        "version": version,
        "realtimeSessionId": scene.thread_id,
        "sessionId": scene.thread_id,
    }
    assert scene.service.targets == [target]
    assert update["session"]["instructions"].startswith("Be nice.\n\n<startup_context>\n")
    assert update["session"]["audio"]["output"]["voice"] == {"v1": "cove", "v2": "marin"}[version]
    names = [each["name"] for each in update["session"].get("tools", ())]
    assert names == ([] if version == "v1" else ["background_agent", "remain_silent"])


async def test_input_reaches_the_service_in_the_form_of_its_version(scene: Scene) -> None:
    """Upstream: the frames of both versions."""
    audio = {"data": "AAAA", "sampleRate": 24000, "numChannels": 1, "samplesPerChannel": 480}
    for version in ("v1", "v2"):
        await scene.start(version=version)
        await scene.request("appendAudio", audio=audio)
        await scene.request("appendText", text="hello")
        await scene.request("appendSpeech", text="say it")
        await scene.service.wait_for(4)
        sent = scene.service.received[1:]
        texts = [_text(each) for each in sent]
        if version == "v1":
            assert texts == ["AAAA", "hello", "say it"]
            assert sent[2]["type"] == "conversation.handoff.append"
        else:
            assert texts == ["AAAA", "[USER] hello", "[BACKEND] say it"]
        await scene.request("stop")
        await scene.until("closed")
        scene.service.received.clear()


def _text(message: JsonValue) -> JsonValue:
    if "item" in message:
        return message["item"]["content"][0]["text"]
    return message.get("audio") or message["output_text"]


async def test_what_is_said_is_published_as_text_and_audio(scene: Scene) -> None:
    """The seed's notifications, and those of later releases."""
    await scene.start()
    at = len(scene.client.received)
    await scene.service.send(
        {"type": "response.output_audio_transcript.delta", "delta": "hello "},
        {"type": "response.output_audio_transcript.delta", "delta": "there"},
        {"type": "response.output_audio_transcript.done", "transcript": "hello there"},
        {"type": "response.output_audio.delta", "delta": "AAAA", "item_id": "item-a"},
        {"type": "conversation.item.added", "item": {"type": "message", "id": "item-u"}},
        {"type": "response.created", "response": {"id": "r"}},
    )
    await scene.until("itemAdded")

    said = [
        (each["method"].removeprefix("thread/realtime/"), each["params"])
        for each in scene.client.received[at:]
    ]
    assert [name for name, _ in said] == [
        "item/started",
        *["item/transcript/delta", "transcript/delta", "transcriptUpdated"] * 2,
        "item/completed",
        "transcript/done",
        "outputAudio/delta",
        "itemAdded",
    ]
    texts = [params["text"] for name, params in said if name == "transcriptUpdated"]
    assert texts == ["hello ", "there"]
    assert said[7][1]["item"]["text"] == "hello there"
    assert said[8][1] == {
        "threadId": scene.thread_id,
        "role": "assistant",
        "text": "hello there",
    }
    assert said[9][1]["audio"] == {
        "data": "AAAA",
        "sampleRate": 24000,
        "numChannels": 1,
        "samplesPerChannel": None,
        "itemId": "item-a",
    }
    assert said[10][1]["item"] == {"type": "message", "id": "item-u"}


async def test_audio_is_published_in_the_format_that_the_service_states(scene: Scene) -> None:
    """The seed: `samplesPerChannel` too."""
    await scene.start(version="v1")
    stated = {"sample_rate": 16000, "channels": 2, "samples_per_channel": 480}
    event = {"type": "conversation.output_audio.delta", "delta": "AAAA", **stated}
    await scene.service.send({**event, "samples_per_channel": -1}, event)

    assert (await scene.until("outputAudio/delta"))["audio"] == {
        "data": "AAAA",
        "sampleRate": 16000,
        "numChannels": 2,
        "samplesPerChannel": 480,
        "itemId": None,
    }


async def test_nothing_that_was_said_becomes_a_part_of_the_thread(scene: Scene) -> None:
    """The seed: these are events of a transport, and no read of the thread returns them."""
    await scene.start()
    await scene.service.send({"type": "response.output_text.done", "text": "hello"})
    await scene.until("transcript/done")

    read = await scene.client.read(scene.thread_id)
    assert read["turns"] == []


# -- tasks


async def test_a_task_becomes_a_turn_and_its_answer_a_report(scene: Scene) -> None:
    """Upstream: the form of the input, the report and the output of the call."""
    scene.stage.model.plays(says("Done & dusted."))
    await scene.start()
    await scene.service.send(
        {"type": "conversation.item.input_audio_transcription.delta", "delta": "please"},
        _call("c1", "fix <it>"),
    )
    added = await scene.until("itemAdded")
    await scene.client.until("turn/completed")
    messages = await scene.service.wait_for(4)

    assert added["item"] == {
        "type": "handoff_request",
        "handoff_id": "c1",
        "item_id": "item-c1",
        "input_transcript": "fix <it>",
        "active_transcript": [
            {"role": "user", "text": "please"},
            {"role": "user", "text": "fix <it>"},
        ],
    }
    (request,) = scene.stage.model.requests
    (user,) = request.conversation()
    assert user == (
        "user",
        (
            "<realtime_delegation>\n  <input>fix &lt;it&gt;</input>\n"
            "  <transcript_delta>user: please\nuser: fix &lt;it&gt;</transcript_delta>\n"
            "</realtime_delegation>"
        ),
    )
    notes = [text for _, text in request.messages("developer")]
    assert any("A realtime conversation has started." in text for text in notes)
    assert _text(messages[1]) == "[BACKEND] Done & dusted."
    assert messages[2]["item"]["call_id"] == "c1"
    assert messages[3] == {"type": "response.create"}


async def test_a_task_during_a_turn_steers_it(scene: Scene) -> None:
    goes_on = asyncio.Event()
    first = says("first")
    scene.stage.model.plays(type(first)([goes_on, *first.steps]), says("second"))
    await scene.start()
    await scene.service.send(_call("c1", "one"))
    await scene.stage.model.wait_for_request(1)
    await scene.service.send(_call("c2", "two"))
    messages = await scene.service.wait_for(3)
    assert messages[1]["item"]["call_id"] == "c2"
    assert "guidance" in messages[1]["item"]["output"]
    goes_on.set()
    await scene.client.until("turn/completed")

    assert len(scene.stage.model.requests) == 2
    assert "<input>two</input>" in scene.stage.model.requests[1].conversation()[-1][1]


async def test_a_service_that_floods_a_turn_with_tasks_is_limited(scene: Scene) -> None:
    """Ours: the input of a turn is kept in memory, and the service decides how many it sends."""
    goes_on = asyncio.Event()
    first = says("first")
    scene.stage.model.plays(type(first)([goes_on, *first.steps]), says("second"))
    await scene.start()
    await scene.service.send(_call("c0", "one"))
    await scene.stage.model.wait_for_request(1)
    count = delegation.MAX_STEERING + 5
    await scene.service.send(*(_call(f"c{number}", "more") for number in range(1, count + 1)))
    messages = await scene.service.wait_for(1 + 2 * count)
    outputs = [each["item"]["output"] for each in messages if "call_id" in each.get("item", {})]
    assert sum("takes no more" in output for output in outputs) == 5
    goes_on.set()
    await scene.client.until("turn/completed")


async def test_a_turn_that_fails_is_reported_to_the_model(scene: Scene) -> None:
    reply = says("x")
    scene.stage.model.plays(type(reply)(status=400, body={"error": {"message": "no such model"}}))
    await scene.start()
    await scene.service.send(_call("c1", "one"))
    messages = await scene.service.wait_for(2)

    assert "no such model" in messages[1]["item"]["output"]


async def test_silence_needs_no_turn(scene: Scene) -> None:
    await scene.start()
    await scene.service.send(_call("c1", "", name="remain_silent"))
    messages = await scene.service.wait_for(2)

    assert messages[1]["item"] == {"type": "function_call_output", "call_id": "c1", "output": ""}
    assert scene.stage.model.requests == []


def _call(call_id: str, prompt: str, name: str = "background_agent") -> JsonValue:
    item = {
        "type": "function_call",
        "name": name,
        "call_id": call_id,
        "id": f"item-{call_id}",
        "arguments": json.dumps({"prompt": prompt}),
    }
    return {"type": "conversation.item.done", "item": item}


# -- the end


async def test_stop_ends_the_session(scene: Scene) -> None:
    await scene.start()
    await scene.request("stop")
    closed = await scene.until("closed")
    await scene.service.wait_closed()

    assert closed == {"threadId": scene.thread_id, "reason": "requested"}
    error = await scene.client.refusal(
        "thread/realtime/appendText", {"threadId": scene.thread_id, "text": "late"}
    )
    assert str(error) == "conversation is not running"


async def test_stop_without_a_session_only_notifies(scene: Scene) -> None:
    """Upstream."""
    await scene.request("stop")

    assert (await scene.until("closed"))["reason"] == "requested"


async def test_a_second_start_replaces_the_session(scene: Scene) -> None:
    await scene.start()
    await scene.start()
    await scene.service.wait_closed()
    await scene.request("appendText", text="hello")

    assert len(scene.service.targets) == 2
    assert _text((await scene.service.wait_for(3))[2]) == "[USER] hello"


async def test_an_error_of_the_service_ends_the_session(scene: Scene) -> None:
    """Upstream: the error, the end of what was being said, then the end of the session."""
    await scene.start()
    at = len(scene.client.received)
    await scene.service.send(
        {"type": "response.output_text.delta", "delta": "unfin"},
        {"type": "error", "error": {"message": "boom"}},
    )
    closed = await scene.until("closed")

    names = [each["method"].removeprefix("thread/realtime/") for each in scene.client.received[at:]]
    assert closed["reason"] == "error"
    assert names[4:] == ["error", "item/completed", "item/started", "item/completed", "closed"]


async def test_a_lost_connection_is_published(scene: Scene) -> None:
    await scene.start()
    await scene.service.cut()

    assert (await scene.until("closed"))["reason"] == "transport_closed"


async def test_events_that_cannot_be_read_are_skipped(scene: Scene) -> None:
    await scene.start()
    await scene.service.send(
        "garbage",
        "[1]",
        {"type": 1},
        {"type": "response.output_text.delta"},
        {"type": "response.output_audio.delta", "delta": "AAAA", "sample_rate": "x"},
        {"type": "conversation.item.done", "item": {"type": "function_call", "call_id": 1}},
        '{"type": "conversation.item.added", "item": ' + "[" * 5000 + "]" * 5000 + "}",
        {"type": "response.output_text.done", "text": "still here"},
    )

    assert (await scene.until("transcript/done"))["text"] == "still here"


async def test_the_last_client_that_leaves_ends_the_session(scene: Scene) -> None:
    await scene.start()
    await scene.client.request("thread/unsubscribe", {"threadId": scene.thread_id})

    await scene.service.wait_closed()


# -- services that fail


async def test_a_refusal_of_the_service_is_published_without_the_key(
    scene: Scene,
) -> None:
    scene.stage.configure(
        f'experimental_realtime_ws_base_url = "{scene.service.url}"\n'
        "[model_providers.keyed]\n"
        'name = "keyed"\nbase_url = "http://127.0.0.1:9/v1"\nenv_key = "REALTIME_KEY"\n'
    )
    scene.service.status = 401
    scene.thread_id = await scene.client.start(modelProvider="keyed")
    await scene.request("start", outputModality="audio")
    failed = await scene.until("error")
    await scene.until("closed")

    assert scene.service.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "401" in failed["message"]
    assert KEY not in json.dumps(scene.client.received)


async def test_a_service_that_does_not_answer_is_given_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime_session, "CONNECT_SECONDS", 0.3)
    scene.service.accepts = lambda: False
    await scene.request("start", outputModality="audio")

    assert "did not answer" in (await scene.until("error"))["message"]
    assert (await scene.until("closed"))["reason"] == "error"


async def test_a_service_that_is_not_there_is_an_error(scene: Scene) -> None:
    scene.stage.configure('experimental_realtime_ws_base_url = "ws://127.0.0.1:9"\n')
    scene.thread_id = await scene.client.start()
    await scene.request("start", outputModality="audio")

    assert "cannot connect" in (await scene.until("error"))["message"]


async def test_a_provider_of_another_kind_has_no_service(scene: Scene) -> None:
    scene.stage.configure(
        '[model_providers.chat]\nname = "c"\nbase_url = "http://x"\nwire_api = "chat"\n'
    )
    thread_id = await scene.client.start(modelProvider="chat")
    error = await scene.client.refusal("thread/realtime/start", {"threadId": thread_id})

    assert error.kind == "noRealtimeService"
    assert "`chat` has no realtime service" in str(error)


# -- bad input

AUDIO = {"data": "AAAA", "sampleRate": 24000, "numChannels": 1}


@pytest.mark.parametrize(
    ("name", "params", "field"),
    [
        ("start", {"version": "v3"}, "version"),
        ("start", {"version": "v1", "outputModality": "text"}, "text realtime output modality"),
        ("start", {"voice": "cove"}, "voice"),
        ("start", {"voice": "x"}, "voice"),
        ("start", {"transport": {"type": "webrtc", "sdp": "x"}}, "transport"),
        ("start", {"prompt": "x" * 65_537}, "prompt"),
        ("start", {"threadId": "01a1f57b-9639-7061-9642-304a3bfd41b0"}, "01a1f57b"),
        ("appendAudio", {"audio": {**AUDIO, "data": "no base64"}}, "base64"),
        ("appendAudio", {"audio": {**AUDIO, "sampleRate": 16000}}, "24000"),
        ("appendAudio", {"audio": {**AUDIO, "data": "A" * 1_048_580}}, "1048576"),
        ("appendAudio", {"audio": {}}, "audio"),
        ("appendText", {"text": 1}, "text"),
        ("appendText", {"text": "x" * 65_537}, "text"),
        ("appendSpeech", {}, "text"),
        ("appendText", {"text": "early"}, "conversation is not running"),
    ],
)
async def test_a_wrong_request_is_refused_by_its_field(
    scene: Scene, name: str, params: JsonValue, field: str
) -> None:
    given = {"threadId": scene.thread_id, **params}
    error = await scene.client.refusal(f"thread/realtime/{name}", given)

    assert field in str(error)
    assert scene.service.targets == []


async def test_the_voices_are_listed_by_version(scene: Scene) -> None:
    """Upstream."""
    listed = await scene.client.request("thread/realtime/listVoices", {})

    assert listed["voices"]["defaultV1"] == "cove"
    assert listed["voices"]["defaultV2"] in listed["voices"]["v2"]
