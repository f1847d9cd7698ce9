"""A client that leaves a thread keeps nothing of it, also if the thread waited for an answer."""

from __future__ import annotations

import gc
import weakref

from tests.harness.model_server import calls, says
from tests.harness.threads import Client, Stage, params_of
from treadle.engine.thread import LoadedThread

QUESTION = {
    "id": "q",
    "header": "h",
    "question": "?",
    "options": [{"label": "a", "description": "a"}, {"label": "b", "description": "b"}],
}


async def is_kept(thread: weakref.ref[LoadedThread], client: Client) -> bool:
    """Whether a thread that was unloaded is still in memory."""
    await client.settled()
    gc.collect()
    return thread() is not None


async def test_a_request_that_another_client_answered_keeps_no_thread(stage: Stage) -> None:
    """The task that waited for the answer of the first client held the thread."""
    client, other = await stage.client(), await stage.client()
    stage.model.plays(calls("request_user_input", {"questions": [QUESTION]}), says("ok"))
    thread_id = await client.start()
    thread = weakref.ref(stage.server.threads.get(thread_id))
    await other.request("thread/resume", {"threadId": thread_id})
    mode = {"mode": "plan", "settings": {"model": "gpt-5"}}
    turn_id = await client.start_turn(thread_id, collaborationMode=mode)
    (request,) = (await client.until("item/tool/requestUserInput"))[-1:]
    await other.until("item/tool/requestUserInput")

    await other.request("thread/unsubscribe", {"threadId": thread_id})
    answer = {"id": request["id"], "result": {"answers": {"q": {"answers": ["a"]}}}}
    await client.peer.send(answer)
    messages = await client.end_of(turn_id)
    assert params_of(messages, "turn/completed")[0]["turn"]["status"] == "completed"
    await client.request("thread/unsubscribe", {"threadId": thread_id})
    assert not await is_kept(thread, other)


async def test_an_open_question_keeps_no_thread(stage: Stage) -> None:
    """A client could keep a thousand threads with 64 MiB of model context each."""
    client = await stage.client()
    thread_id = await client.start()
    thread = weakref.ref(stage.server.threads.get(thread_id))
    await client.request("thread/increment_elicitation", {"threadId": thread_id})
    await client.request("thread/unsubscribe", {"threadId": thread_id})
    assert not await is_kept(thread, client)
    await client.request("thread/resume", {"threadId": thread_id})
    refused = await client.refusal("thread/decrement_elicitation", {"threadId": thread_id})
    assert refused.message == "out-of-band elicitation count is already zero"
