"""Scenarios: what the servers in the tests of the client do."""

from __future__ import annotations

import json

from tests.client.fake import (
    SCENARIOS,
    SESSION,
    THREAD,
    THREAD_INFO,
    TURN,
    Actor,
    answers,
    message_item,
    scenario,
    start_turn,
    turn,
)
from treadle.protocol.base import JsonValue

HUGE = 32 * 1024 * 1024


async def refuse_models(actor: Actor, request: JsonValue) -> None:
    """Answer with an error that has fields."""
    error = {"code": -32600, "message": "no", "data": {"kind": "invalidParams", "path": "x"}}
    await actor.send({"id": request["id"], "error": error})


SCENARIOS["refuses"] = {"model/list": refuse_models}


async def hang_up(actor: Actor, request: JsonValue) -> None:
    """Write to stderr and disconnect without an answer."""
    await actor.exit(7, "first words\nlast words\n")


SCENARIOS["hangs up"] = {"model/list": hang_up, "turn/start": hang_up}


async def busy(actor: Actor, request: JsonValue) -> None:
    """Report overload for the first two requests."""
    actor.counts["busy"] += 1
    if actor.counts["busy"] <= 2:
        await actor.refuse(request, -32001, "Server overloaded; retry later.")
    else:
        await actor.answer(request, {"data": [], "nextCursor": None})


SCENARIOS["busy"] = {"model/list": busy}


async def say_nothing(actor: Actor, request: JsonValue) -> None:
    """Keep the client waiting."""


SCENARIOS["silent"] = {"model/list": say_nothing}


@scenario("early events")
async def events_before_the_answer(actor: Actor, request: JsonValue) -> None:
    """Send all events of the turn first, and answer last."""
    held: list[JsonValue] = []

    async def hold(*documents: JsonValue) -> None:
        held.extend(documents)

    send, actor.send = actor.send, hold
    await start_turn(actor, request)
    actor.send = send
    await actor.send(*held[1:], held[0])


@scenario("noise")
async def noise(actor: Actor, request: JsonValue) -> None:
    """Send invalid and unknown messages in the middle of a turn."""
    await actor.send_raw(b"this is not JSON", b"", b"[1, 2]", b'{"half": ', b"\xff\xfe", b"5")
    await actor.send({"id": "unsolicited", "result": {}}, {"method": "brand/new", "params": {}})
    await actor.answer(request, {"turn": turn(), "newField": 1})
    await actor.notify("turn/sparkled", sparkle=1)
    await actor.notify("item/started", item={"type": "hologram", "id": "h-1"}, startedAtMs=1)
    hologram = {"type": "hologram", "id": "h-1", "depth": 3}
    await actor.notify("item/completed", item=hologram, completedAtMs=1)
    odd = {"type": "commandExecution", "id": "c-1", "command": "x", "cwd": "/", "status": "paused"}
    await actor.notify("item/completed", item={**odd, "commandActions": [{"type": "dance"}]})
    await actor.send_raw(
        b'{"method":"item/agentMessage/delta","params":{"threadId":"thr-1","turnId":"turn-1",'
        b'"itemId":"item-1","delta":"half \\ud83d"}}'
    )
    await actor.notify("item/completed", item=message_item("done"), completedAtMs=2)
    await actor.notify("turn/completed", turn={"id": TURN, "status": "completed"})


@scenario("huge")
async def huge(actor: Actor, request: JsonValue) -> None:
    """One message of 32 MiB."""
    await actor.answer(request, {"turn": turn()})
    await actor.notify("item/completed", item=message_item("x" * HUGE), completedAtMs=1)
    await actor.notify("turn/completed", turn=turn("completed"))


@scenario("fails")
async def fails(actor: Actor, request: JsonValue) -> None:
    """Play a turn that ends with an error of the provider."""
    await actor.answer(request, {"turn": turn()})
    await actor.notify("item/completed", item=message_item("some"), completedAtMs=1)
    info = {"responseStreamDisconnected": {"httpStatusCode": 503}}
    error = {"message": "the model is gone", "codexErrorInfo": info}
    await actor.notify("error", error=error, willRetry=False)
    await actor.notify("turn/completed", turn=turn("failed", error=error))


@scenario("fails in old words")
async def fails_in_old_words(actor: Actor, request: JsonValue) -> None:
    """Report the failure as older servers do."""
    await actor.answer(request, {"turn": {"id": TURN}})
    await actor.send({"method": "turn/failed", "params": {"message": "the model is gone"}})


@scenario("cancelled in old words")
async def cancelled_in_old_words(actor: Actor, request: JsonValue) -> None:
    """Report the cancellation as older servers do."""
    await actor.answer(request, {"turn": {"id": TURN}})
    await actor.send({"method": "turn/cancelled", "params": {"reason": "user"}})


@scenario("completes without params")
async def completes_without_params(actor: Actor, request: JsonValue) -> None:
    """Play the shortest possible end of a turn."""
    await actor.answer(request, {"turn": {"id": TURN}})
    await actor.notify("item/completed", item=message_item("short"))
    await actor.send({"method": "turn/completed"})


async def _wait_for_interrupt(actor: Actor, request: JsonValue) -> None:
    await actor.answer(request, {"turn": turn()})
    await actor.notify("turn/started", turn=turn())
    await actor.notify("item/agentMessage/delta", itemId="item-1", delta="on and on")


async def interrupt_late(actor: Actor, request: JsonValue) -> None:
    """Refuse twice to stop a turn that has only just begun, as the reference does."""
    actor.counts["interrupt"] += 1
    if actor.counts["interrupt"] <= 2:
        await actor.refuse(request, -32600, "no active turn to interrupt")
        return
    await actor.answer(request, {})
    await actor.notify("turn/completed", turn=turn("interrupted"))


SCENARIOS["endless"] = {"turn/start": _wait_for_interrupt, "turn/interrupt": interrupt_late}


@scenario("mute")
async def mute(actor: Actor, request: JsonValue) -> None:
    """Start a turn and send no events."""
    await actor.answer(request, {"turn": turn()})


async def read_ended(actor: Actor, request: JsonValue) -> None:
    """Answer that the stored turn has ended."""
    ended = turn("completed", items=[message_item("stored only")])
    await actor.answer(request, {"thread": {**THREAD_INFO, "turns": [ended]}})


SCENARIOS["lost ending"] = {"turn/start": mute, "thread/read": read_ended}


@scenario("asks")
async def asks(actor: Actor, request: JsonValue) -> None:
    """Send the server requests that the first input lists as JSON, one after another."""
    await actor.answer(request, {"turn": turn()})
    await actor.notify("turn/started", turn=turn())
    for number, (method, params) in enumerate(json.loads(request["params"]["input"][0]["text"])):
        await actor.put(f"ask-{number}", method, **params)
    await actor.notify("turn/completed", turn=turn("completed"))


@scenario("asks and moves on")
async def asks_and_moves_on(actor: Actor, request: JsonValue) -> None:
    """Send a server request that another client answers while this one handles it."""
    await actor.answer(request, {"turn": turn()})
    method = "item/commandExecution/requestApproval"
    ids = {"threadId": THREAD, "turnId": TURN, "itemId": "item-1", "startedAtMs": 1}
    await actor.send({"id": 77, "method": method, "params": ids})


async def move_on(actor: Actor, request: JsonValue) -> None:
    """Report that another client has answered."""
    await actor.answer(request, {"turnId": TURN})
    await actor.send(
        {"method": "serverRequest/resolved", "params": {"threadId": THREAD, "requestId": 77}}
    )
    await actor.notify("turn/completed", turn=turn("completed"))


SCENARIOS["asks and moves on"] = {"turn/start": asks_and_moves_on, "turn/steer": move_on}


@scenario("echo")
async def echo(actor: Actor, request: JsonValue) -> None:
    """Play a model that repeats its input."""
    await actor.answer(request, {"turn": turn()})
    text = request["params"]["input"][0]["text"]
    await actor.notify("item/completed", item=message_item(text), completedAtMs=1)
    await actor.notify("turn/completed", turn=turn("completed"))


async def join_turn(actor: Actor, request: JsonValue) -> None:
    """Add the second input to the turn of the first, as a server may."""
    actor.counts["start"] += 1
    if actor.counts["start"] == 1:
        await actor.answer(request, {"turn": turn()})
        await actor.notify("item/completed", item=message_item("one"), completedAtMs=1)
    else:
        await actor.answer(request, {"turn": turn()})
        await actor.notify("item/completed", item=message_item("two", "item-2"), completedAtMs=2)
        await actor.notify("turn/completed", turn=turn("completed"))


SCENARIOS["joins"] = {"turn/start": join_turn}
SCENARIOS["minimal"] = {
    "initialize": answers({"userAgent": "old/0.98"}),
    "thread/start": answers({"thread": {"id": THREAD}}),
    "turn/start": completes_without_params,
}


async def close_thread(actor: Actor, request: JsonValue) -> None:
    """Unload the thread after its turn, as a server does with an idle one."""
    await start_turn(actor, request)
    await actor.send({"method": "thread/closed", "params": {"threadId": THREAD}})


SCENARIOS["unloads"] = {"turn/start": close_thread}


@scenario("announces")
async def announces(actor: Actor, request: JsonValue) -> None:
    """Broadcast notifications in the middle of a turn."""
    await actor.answer(request, {"turn": turn()})
    await actor.send({"method": "thread/started", "params": {"thread": THREAD_INFO}})
    await actor.notify("item/agentMessage/delta", itemId="item-1", delta="x")
    await actor.send({"method": "warning", "params": {"message": "careful"}})
    await actor.notify("turn/completed", turn=turn("completed"))


class Broken:
    """Breaks the connection in the middle of a turn; the client reconnects and gets the rest."""

    def __init__(self, *, counts: bool) -> None:
        self._counts = counts

    async def start(self, actor: Actor, request: JsonValue) -> None:
        """Send a part of the turn, then disconnect."""
        await actor.answer(request, {"turn": turn()})
        for number, event in enumerate(self._events()[:3], 1):
            await actor.send(event | ({"seq": number} if self._counts else {}))
        await actor.hang_up()

    async def resume(self, actor: Actor, request: JsonValue) -> None:
        """Send the missed events, and one that was not missed."""
        if not self._counts:
            items = [message_item("one", "stored-1"), message_item("two", "stored-2")]
            ended = turn("completed", items=items)
            await actor.answer(request, {**SESSION, "thread": {**THREAD_INFO, "turns": [ended]}})
            return
        await actor.answer(request, SESSION)
        for number, event in enumerate(self._events(), 1):
            if number > request["params"]["afterSeq"] - 1:
                await actor.send(event | {"seq": number})

    @staticmethod
    def _events() -> list[JsonValue]:
        events = [
            ("turn/started", {"turn": turn()}),
            ("item/agentMessage/delta", {"itemId": "item-1", "delta": "one"}),
            ("item/completed", {"item": message_item("one"), "completedAtMs": 1}),
            ("item/agentMessage/delta", {"itemId": "item-2", "delta": "two"}),
            ("item/completed", {"item": message_item("two", "item-2"), "completedAtMs": 2}),
            ("turn/completed", {"turn": turn("completed")}),
        ]
        ids = {"threadId": THREAD, "turnId": TURN}
        return [{"method": method, "params": {**ids, **params}} for method, params in events]


for _name, _broken in (("broken", Broken(counts=False)), ("broken, counting", Broken(counts=True))):
    SCENARIOS[_name] = {"turn/start": _broken.start, "thread/resume": _broken.resume}


async def resume_unsure(actor: Actor, request: JsonValue) -> None:
    """Answer before the end of the turn is stored."""
    unsure = turn("interrupted", items=[message_item("one", "stored-1")])
    await actor.answer(request, {**SESSION, "thread": {**THREAD_INFO, "turns": [unsure]}})


async def read_unsure_first(actor: Actor, request: JsonValue) -> None:
    """Show the end of the turn only when read the second time."""
    actor.counts["read"] += 1
    stored = turn("interrupted", items=[message_item("one", "stored-1")])
    if actor.counts["read"] > 1:
        items = [message_item("one", "stored-1"), message_item("two", "stored-2")]
        stored = turn("completed", items=items, completedAt=5)
    await actor.answer(request, {"thread": {**THREAD_INFO, "turns": [stored]}})


SCENARIOS["broken, unsure"] = {
    "turn/start": Broken(counts=False).start,
    "thread/resume": resume_unsure,
    "thread/read": read_unsure_first,
}
