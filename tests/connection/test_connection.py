"""Requests, answers and notifications between two connections."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from tests.connection.methods import (
    BACK,
    ECHO,
    NOTICE,
    WAIT,
    TextParams,
    TextResponse,
    line,
    router,
)
from treadle.connection.connection import Connection, ConnectionLost
from treadle.connection.context import Context
from treadle.jsonrpc.errors import InvalidRequest, RpcError
from treadle.protocol.base import JsonValue
from treadle.transport.base import TransportError
from treadle.transport.memory import MemoryTransport, memory_pair

Ctx = Context[str]


def echo(_ctx: Ctx, params: TextParams) -> TextResponse:
    return TextResponse(params.text)


async def answers_of(far: MemoryTransport, *documents: JsonValue, count: int) -> list[JsonValue]:
    """Send documents to a connection over a bare transport."""
    await far.send([json.dumps(document).encode() for document in documents])
    messages: list[JsonValue] = []
    while len(messages) < count:
        frames = await far.receive()
        assert frames, "connection closed"
        messages += (json.loads(frame) for frame in frames if isinstance(frame, bytes))
    return messages


async def test_either_end_may_send_requests() -> None:
    near, far = router(), router()
    near.request(ECHO)(echo)
    far.request(ECHO)(echo)
    async with line(far, near) as both:
        assert await both.near.request(ECHO, TextParams("a")) == TextResponse("a")
        assert await both.far.request(ECHO, TextParams("b")) == TextResponse("b")


async def test_a_handler_may_send_a_request_before_it_answers() -> None:
    near, far = router(), router()

    @far.request(ECHO)
    async def ask_back(ctx: Ctx, params: TextParams) -> TextResponse:
        answer = await ctx.connection.request(BACK, params)
        return TextResponse(f"{answer.text}!")

    @near.request(BACK)
    def back(_ctx: Ctx, params: TextParams) -> TextResponse:
        return TextResponse(params.text.upper())

    async with line(far, near) as both:
        assert await both.near.request(ECHO, TextParams("hi")) == TextResponse("HI!")


async def test_an_answer_precedes_the_notifications_about_it() -> None:
    far = router()

    @far.request(ECHO)
    async def announce(ctx: Ctx, params: TextParams) -> TextResponse:
        ctx.after_reply(lambda: order.append("acted"))
        order.append("handled")
        return TextResponse(params.text)

    order: list[str] = []
    one, two = memory_pair()
    connection = Connection(two, far, "far", stamp=lambda: 7)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(connection.run())

        @far.request(BACK)
        def notify(ctx: Ctx, params: TextParams) -> TextResponse:
            ctx.after_reply(lambda: tasks.create_task(ctx.connection.notify(NOTICE, params)))
            return TextResponse("first")

        ask = {"id": 1, "method": "test/back", "params": {"text": "x"}}
        assert await answers_of(one, ask, count=2) == [
            {"id": 1, "result": {"text": "first"}},
            {"method": "test/notice", "params": {"text": "x"}, "emittedAtMs": 7},
        ]
        await answers_of(one, {"id": 2, "method": "test/echo"}, count=1)
        assert order == ["handled", "acted"]
        await one.close()


async def test_an_action_that_fails_after_the_answer_sends_no_second_one() -> None:
    far = router()

    @far.request(ECHO)
    def fail_later(ctx: Ctx, params: TextParams) -> TextResponse:
        ctx.after_reply(lambda: 1 // 0)
        return TextResponse(params.text)

    far.request(BACK)(echo)
    one, two = memory_pair()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(Connection(two, far, "far").run())
        requests = [{"id": 1, "method": "test/echo"}, {"id": 2, "method": "test/back"}]
        assert await answers_of(one, *requests, count=2) == [
            {"id": 1, "result": {"text": ""}},
            {"id": 2, "result": {"text": ""}},
        ]
        await one.close()


async def test_the_details_of_a_failed_handler_are_not_sent_to_the_peer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = router()

    @far.request(ECHO)
    async def leak(_ctx: Ctx, _params: TextParams) -> TextResponse:
        raise RuntimeError("the password is swordfish")

    @far.request(BACK)
    def leak_at_once(_ctx: Ctx, _params: TextParams) -> TextResponse:
        raise KeyError("swordfish")

    async with line(far) as both:
        for method in (ECHO, BACK):
            with pytest.raises(RpcError) as caught:
                await both.near.request(method, TextParams())
            error = caught.value
            assert (error.code, error.message) == (-32603, "internal error")
            assert error.data == {"kind": "internalError"}
    assert [record.message for record in caplog.records] == ["handler failed"] * 2


async def test_an_error_that_a_handler_raises_on_purpose_is_sent() -> None:
    far = router()

    @far.request(ECHO)
    async def refuse(_ctx: Ctx, _params: TextParams) -> TextResponse:
        raise InvalidRequest("not now", thread="t")

    async with line(far) as both:
        with pytest.raises(RpcError, match="not now") as caught:
            await both.near.request(ECHO, TextParams())
    assert caught.value.data == {"kind": "invalidRequest", "thread": "t"}


async def test_errors_of_the_layers_below_are_translated_once() -> None:
    far = router()
    far.translate = lambda error: InvalidRequest(f"as translated: {error!r}")

    @far.request(ECHO)
    async def fail(_ctx: Ctx, _params: TextParams) -> TextResponse:
        raise LookupError("t")

    async with line(far) as both:
        with pytest.raises(RpcError, match=r"as translated: LookupError\('t'\)"):
            await both.near.request(ECHO, TextParams())


async def test_a_failed_notification_handler_does_not_end_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = router()
    far.request(ECHO)(echo)
    texts: list[str] = []

    @far.notification(NOTICE)
    def on_notice(_ctx: Ctx, params: TextParams) -> None:
        texts.append(params.text)
        raise RuntimeError(params.text)

    async with line(far) as both:
        await both.near.notify(NOTICE, TextParams("a"))
        assert await both.near.request(ECHO, TextParams("b")) == TextResponse("b")
    assert texts == ["a"]
    assert [record.message for record in caplog.records] == ["handler failed"]


@pytest.mark.parametrize(
    ("id_", "method", "answered"),
    [("x" * 100_000, 5, "x" * 100_000), (7, None, 7)],
)
async def test_an_invalid_request_is_answered_with_an_error(
    id_: JsonValue, method: JsonValue, answered: JsonValue
) -> None:
    far = router()
    far.request(ECHO)(echo)
    one, two = memory_pair()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(Connection(two, far, "far").run())
        bad = {"id": id_, "method": method}
        good = {"id": 1, "method": "test/echo"}
        [error, echoed] = await answers_of(one, bad, good, count=2)
        await one.close()
    assert (error["id"], error["error"]["code"]) == (answered, -32600)
    assert "expected" in error["error"]["message"].lower()
    assert echoed == {"id": 1, "result": {"text": ""}}


async def test_an_error_without_an_id_is_not_answered() -> None:
    far = router()
    far.request(ECHO)(echo)
    one, two = memory_pair()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(Connection(two, far, "far").run())
        error = {"id": None, "error": {"code": -32600, "message": "no"}}
        good = {"id": 1, "method": "test/echo"}
        assert await answers_of(one, error, good, count=1) == [{"id": 1, "result": {"text": ""}}]
        await one.close()


async def test_an_invalid_notification_is_dropped() -> None:
    far = router()
    far.request(ECHO)(echo)
    far.notification(NOTICE)(lambda _ctx, _params: pytest.fail("it was read"))
    one, two = memory_pair()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(Connection(two, far, "far").run())
        bad = {"method": "test/notice", "params": {"text": 5}}
        assert await answers_of(one, bad, {"id": 1, "method": "test/echo"}, count=1) == [
            {"id": 1, "result": {"text": ""}}
        ]
        await one.close()


async def test_answers_without_a_request_are_ignored() -> None:
    far = router()
    far.request(ECHO)(echo)
    one, two = memory_pair()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(Connection(two, far, "far").run())
        stray: list[JsonValue] = [{"id": 0, "result": 1}, {"id": "x", "error": {"code": 1}}]
        assert await answers_of(one, *stray, {"id": 1, "method": "test/echo"}, count=1) == [
            {"id": 1, "result": {"text": ""}}
        ]
        await one.close()


async def test_requests_beyond_the_limit_are_refused_as_overload() -> None:
    far = router()
    go = asyncio.Event()

    @far.request(WAIT)
    async def wait(_ctx: Ctx, params: TextParams) -> TextResponse:
        await go.wait()
        return TextResponse(params.text)

    one, two = memory_pair()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(Connection(two, far, "far", max_in_flight=3).run())
        requests = [{"id": id_, "method": "test/wait"} for id_ in range(1000)]
        error = {
            "code": -32001,
            "message": "Server overloaded; retry later.",
            "data": {"kind": "overloaded", "codexErrorInfo": "server_overloaded"},
        }
        refused = await answers_of(one, *requests, count=997)
        assert refused == [{"error": error, "id": id_} for id_ in range(3, 1000)]
        go.set()
        answered = await answers_of(one, count=3)
        assert answered == [{"id": id_, "result": {"text": ""}} for id_ in range(3)]
        await one.close()


async def test_a_disconnect_fails_the_pending_requests() -> None:
    far = router()

    @far.request(WAIT)
    async def never(_ctx: Ctx, _params: TextParams) -> TextResponse:
        started.release()
        await asyncio.Event().wait()
        raise AssertionError

    started = asyncio.Semaphore(0)
    async with line(far) as both, asyncio.TaskGroup() as tasks:
        requests = [tasks.create_task(lost(both.near)) for _ in range(5)]
        for _ in requests:
            await started.acquire()
        both.far_run.cancel()
        assert [await task for task in requests] == ["memory closed the connection"] * 5
        with pytest.raises(ConnectionLost):
            await both.near.request(ECHO, TextParams())


async def lost(connection: Connection[str]) -> str:
    with pytest.raises(ConnectionLost) as caught:
        await connection.request(WAIT, TextParams())
    return str(caught.value)


async def test_requests_from_before_the_end_of_input_are_answered() -> None:
    far = router()
    go = asyncio.Event()

    @far.request(WAIT)
    async def wait(_ctx: Ctx, params: TextParams) -> TextResponse:
        started.set()
        await go.wait()
        return TextResponse(params.text)

    started = asyncio.Event()
    one, two = memory_pair()
    connection = Connection(two, far, "far")
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        run = tasks.create_task(connection.run())
        await one.send([b'{"id":1,"method":"test/wait","params":{"text":"x"}}'])
        await started.wait()
        connection.finish()
        go.set()
        assert await answers_of(one, count=1) == [{"id": 1, "result": {"text": "x"}}]
        await run


async def test_request_ids_start_at_zero_and_count_up() -> None:
    one, two = memory_pair()
    connection = Connection(two, router(), "far")
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(connection.run())
        requests = [tasks.create_task(connection.request(ECHO, TextParams(t))) for t in "ab"]
        sent = await answers_of(one, count=2)
        assert sent == [
            {"method": "test/echo", "id": 0, "params": {"text": "a"}},
            {"method": "test/echo", "id": 1, "params": {"text": "b"}},
        ]
        replies: list[JsonValue] = [{"id": id_, "result": {"text": str(id_)}} for id_ in (1, 0)]
        await answers_of(one, *replies, count=0)
        assert [(await task).text for task in requests] == ["0", "1"]
        await one.close()


async def test_nothing_keeps_running_after_a_connection() -> None:
    far = router()

    @far.request(WAIT)
    async def never(_ctx: Ctx, _params: TextParams) -> TextResponse:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    started = asyncio.Event()
    before = asyncio.all_tasks()
    async with line(far) as both, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(lost(both.near))
        await started.wait()
        both.far_run.cancel()
        await asking
    assert asyncio.all_tasks() == before


async def test_a_cancelled_request_leaves_nothing_behind() -> None:
    far = router()
    far.request(ECHO)(echo)

    @far.request(WAIT)
    async def wait(_ctx: Ctx, _params: TextParams) -> TextResponse:
        started.set()
        await go.wait()
        return TextResponse("too late")

    started, go = asyncio.Event(), asyncio.Event()
    async with line(far) as both, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(both.near.request(WAIT, TextParams()))
        await started.wait()
        asking.cancel()
        go.set()
        assert await both.near.request(ECHO, TextParams("next")) == TextResponse("next")


async def test_a_broken_transport_is_logged_and_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        peer = "broken"

        async def receive(self) -> list[bytes]:
            raise TransportError("peer reset")

        async def send(self, _frames: object) -> None:
            raise TransportError("peer reset")

        async def close(self) -> None:
            closed.append(True)

    closed: list[bool] = []
    caplog.set_level(logging.INFO)
    async with asyncio.timeout(20):
        await Connection(Broken(), router(), "x").run()
    assert closed == [True]
    assert [record.message for record in caplog.records] == ["connection lost"]
