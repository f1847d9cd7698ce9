"""Deadlines, refusals, keys and broken connections."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing

import pytest

from tests.model.double import (
    Answer,
    ProviderDouble,
    collect,
    event,
    events,
    model_of,
    provider_double,
    refusal,
    request,
)
from treadle.model.base import Completed, ModelError, ModelTextDelta, RateLimits
from treadle.model.errors import delay_of_headers
from treadle.model.http import body
from treadle.model.http import client as http
from treadle.model.http.pacing import MAX_DELTA
from treadle.model.provider import ProviderConfig, build_model
from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo, CodexErrorInfoDetail, HttpStatus
from treadle.support.text.json_text import MAX_CONTAINERS

COMPLETED: JsonValue = {"type": "response.completed", "response": {"id": "r"}}
DELTA: JsonValue = {"type": "response.output_text.delta", "item_id": "m", "delta": "x"}
DISCONNECTED = CodexErrorInfoDetail(response_stream_disconnected=HttpStatus())
NOT_CONNECTED = CodexErrorInfoDetail(http_connection_failed=HttpStatus())


async def failed(answer: Answer, **settings: JsonValue) -> ModelError:
    async with provider_double(answer) as double, model_of(double, **settings) as model:
        with pytest.raises(ModelError) as caught:
            await collect(model)
    return caught.value


def connection_failed(status: int) -> CodexErrorInfo:
    return CodexErrorInfoDetail(http_connection_failed=HttpStatus(http_status_code=status))


@pytest.mark.parametrize(
    ("status", "error", "info", "is_retryable"),
    [
        ("400 Bad Request", {"message": "bad thing"}, "badRequest", False),
        ("400 Bad Request", {"code": "context_length_exceeded"}, "contextWindowExceeded", False),
        ("400 Bad Request", {"message": "maximum context length is 9"}, "contextWindowExceeded", 0),
        ("401 Unauthorized", {"message": "no auth"}, connection_failed(401), False),
        ("402 Payment Required", {"message": "pay"}, "usageLimitExceeded", False),
        ("403 Forbidden", {"message": "no"}, connection_failed(403), False),
        ("404 Not Found", {"message": "no model"}, connection_failed(404), False),
        ("408 Request Timeout", {"message": "slow"}, connection_failed(408), True),
        ("413 Too Large", {"message": "prompt is too long"}, "contextWindowExceeded", False),
        ("429 Too Many Requests", {"message": "slow down"}, "rateLimitExceeded", True),
        ("429 Too Many Requests", {"type": "usage_limit_reached"}, "usageLimitExceeded", False),
        ("429 Too Many Requests", {"code": "insufficient_quota"}, "usageLimitExceeded", False),
        ("500 Internal Server Error", {"message": "oops"}, "internalServerError", True),
        ("502 Bad Gateway", {"message": "oops"}, "internalServerError", True),
        ("503 Service Unavailable", {"code": "slow_down"}, "serverOverloaded", True),
        ("529 Overloaded", {"type": "overloaded_error"}, "serverOverloaded", True),
    ],
)
async def test_a_status_is_mapped_to_a_cause_that_clients_know(
    status: str, error: JsonValue, info: CodexErrorInfo, is_retryable: bool
) -> None:
    caught = await failed(refusal(status, {"error": error}))
    assert (caught.info, caught.is_retryable) == (info, bool(is_retryable))
    assert (caught.http_status, caught.phase, caught.emitted) == (int(status[:3]), "request", False)
    assert status in caught.message
    assert str(error.get("message", "")) in caught.message


async def test_the_body_of_a_refusal_is_bounded() -> None:
    caught = await failed(Answer(status="502 Bad Gateway", pieces=[b"<html>" * 100_000]))
    assert len(caught.message) < 3000


@pytest.mark.parametrize(
    ("headers", "delay"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:30 GMT"}, 20.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"anthropic-ratelimit-requests-reset": "1970-01-01T00:01:00+00:00"}, 50.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 20 Nov 1995 19:12:08 +99999999999999999"}, None),
        ({"retry-after": "Mon, 20 Nov 99999999999999999999 19:12:08 +0000"}, None),
        ({}, None),
    ],
)
def test_the_requested_delay_is_read_from_headers(
    headers: dict[str, str], delay: float | None
) -> None:
    assert delay_of_headers(headers, now=lambda: 10.0) == delay


async def test_a_429_says_when_to_retry() -> None:
    caught = await failed(refusal("429 Too Many Requests", {"error": {}}, retry_after="3"))
    assert caught.retry_after_s == 3.0
    caught = await failed(refusal("429 Too Many Requests", {"error": {"resets_in_seconds": 60}}))
    assert caught.retry_after_s == 60.0


async def test_a_refused_connection_is_a_connection_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        config = ProviderConfig(base_url=f"http://127.0.0.1:{port}")
        model = build_model("gone", config, environ={})
        with pytest.raises(ModelError) as caught:
            await collect(model)
        await model.close()
    assert (caught.value.info, caught.value.is_retryable) == (NOT_CONNECTED, True)


async def test_a_connection_closed_before_an_answer_is_a_connection_failure() -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    model = build_model("x", ProviderConfig(base_url=f"http://127.0.0.1:{port}"), environ={})
    async with asyncio.timeout(10):
        with pytest.raises(ModelError) as caught:
            await collect(model)
    await model.close()
    server.close()
    assert (caught.value.info, caught.value.is_retryable) == (NOT_CONNECTED, True)


async def test_a_server_that_never_answers_times_out() -> None:
    caught = await failed(Answer(is_silent_before_head=True), first_byte_timeout_ms=20)
    never = CodexErrorInfoDetail(response_stream_connection_failed=HttpStatus())
    assert (caught.info, caught.is_retryable, caught.phase) == (never, True, "request")


async def test_a_stream_that_becomes_idle_times_out() -> None:
    caught = await failed(events(DELTA, is_silent_after=True), stream_idle_timeout_ms=300)
    assert (caught.info, caught.is_retryable, caught.emitted) == (DISCONNECTED, True, True)
    assert "0.3 s" in caught.message


async def test_a_response_that_takes_too_long_in_total_times_out() -> None:
    caught = await failed(events(DELTA, is_silent_after=True), total_timeout_ms=50)
    assert "total_timeout_ms" in caught.message


async def test_a_response_that_goes_on_for_ever_ends_and_is_not_requested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No stream with one character every five minutes is idle: it would take ten years."""
    monkeypatch.setattr(body, "MAX_SECONDS", 0.05)
    caught = await failed(events(DELTA, is_silent_after=True))
    assert (caught.info, caught.is_retryable) == (DISCONNECTED, False)


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_stream_that_is_cut_counts_as_disconnected(is_chunked: bool) -> None:
    caught = await failed(events(DELTA, is_chunked=is_chunked, is_cut=True))
    assert (caught.info, caught.is_retryable, caught.phase) == (DISCONNECTED, True, "stream")


async def test_a_data_line_of_4_mib_arrives() -> None:
    text = "\N{GRINNING FACE}" * (1024 * 1024)
    stream = event({**DELTA, "delta": text}) + event(COMPLETED)
    pieces = [stream[at : at + 65_537] for at in range(0, len(stream), 65_537)]
    async with provider_double(Answer(pieces=pieces)) as double, model_of(double) as model:
        found = await collect(model)
    *deltas, last = found[2:]
    assert all(isinstance(each, ModelTextDelta) and len(each.delta) <= MAX_DELTA for each in deltas)
    assert "".join(each.delta for each in deltas if isinstance(each, ModelTextDelta)) == text
    assert last == Completed("r")


async def test_twenty_thousand_deltas_arrive_in_order() -> None:
    deltas = [event({**DELTA, "delta": str(at)}) for at in range(20_000)]
    pieces = [b"".join(deltas[at : at + 100]) for at in range(0, 20_000, 100)]
    answer = Answer(pieces=[*pieces, event(COMPLETED)])
    async with provider_double(answer) as double, model_of(double) as model:
        found = await collect(model)
    texts = [found.delta for found in found if isinstance(found, ModelTextDelta)]
    assert texts == [str(at) for at in range(20_000)]


async def test_closing_the_stream_disconnects_at_once() -> None:
    answer = events(DELTA, is_silent_after=True)
    async with provider_double(answer) as double, model_of(double) as model:
        async with aclosing(model.stream(request())) as stream:
            async for found in stream:
                if isinstance(found, ModelTextDelta):
                    break
        await double.hung_up.wait()


async def test_cancelling_a_task_that_waits_for_the_answer_disconnects_at_once() -> None:
    answer = Answer(is_silent_before_head=True)
    async with provider_double(answer) as double, model_of(double) as model:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(collect(model))
            await double.asked.wait()
            task.cancel()
        await double.hung_up.wait()


async def test_a_connection_is_reused() -> None:
    answers = [events(COMPLETED, is_chunked=True, is_at_once=True) for _ in range(3)]
    async with provider_double(*answers) as double, model_of(double) as model:
        for _ in range(3):
            await collect(model)
    assert {received.connection for received in double.requests} == {1}


async def test_a_kept_connection_that_was_closed_is_replaced() -> None:
    class Forgetful(ProviderDouble):
        """Reads a second request on the same connection and disconnects instead of answering."""

        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.answers.append(events(COMPLETED, is_chunked=True, is_at_once=True))
            await self._exchange(reader, writer, 0)
            await reader.read(1)
            writer.transport.abort()

    double = Forgetful()
    server = await asyncio.start_server(double.serve, "127.0.0.1", 0)
    double.port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(10), model_of(double) as model:
        for _ in range(2):
            assert (await collect(model))[1:] == [Completed("r")]
    server.close()
    await double.stop()
    assert len(double.requests) == 2


@pytest.mark.parametrize(
    ("settings", "environ", "token", "sent"),
    [
        ({"env_key": "KEY"}, {"KEY": "k"}, None, "Bearer k"),
        ({"experimental_bearer_token": "b"}, {}, None, "Bearer b"),
        ({"env_key": "KEY", "experimental_bearer_token": "b"}, {"KEY": ""}, None, "Bearer b"),
        ({"requires_openai_auth": True}, {}, "tok", "Bearer tok"),
        ({"requires_openai_auth": True, "env_key": "KEY"}, {"KEY": "k"}, "tok", "Bearer tok"),
        ({"requires_openai_auth": True, "env_key": "KEY"}, {"KEY": "k"}, None, "Bearer k"),
        ({"requires_openai_auth": True}, {}, None, None),
        ({}, {}, "tok", None),
    ],
)
async def test_the_key_comes_from_the_configured_place(
    settings: JsonValue, environ: dict[str, str], token: str | None, sent: str | None
) -> None:
    async with (
        provider_double(events(COMPLETED)) as double,
        model_of(double, environ=environ, token=token, **settings) as model,
    ):
        await collect(model)
    assert double.requests[0].headers.get("authorization") == sent


async def test_a_missing_key_is_named_when_it_is_needed() -> None:
    config = ProviderConfig(base_url="http://127.0.0.1:1", env_key="SOME_KEY")
    model = build_model("acme", config, environ={"SOME_KEY": ""})
    with pytest.raises(ModelError, match="SOME_KEY") as caught:
        await collect(model)
    await model.close()
    assert (caught.value.info, caught.value.is_retryable) == ("unauthorized", False)


async def test_headers_of_the_configuration_and_the_environment_are_sent() -> None:
    settings: JsonValue = {
        "http_headers": {"X-Team": "blue", "User-Agent": "mine"},
        "env_http_headers": {"X-Org": "ORG", "X-None": "NONE", "X-Empty": "EMPTY"},
    }
    environ = {"ORG": "acme", "EMPTY": ""}
    async with (
        provider_double(events(COMPLETED)) as double,
        model_of(double, environ=environ, **settings) as model,
    ):
        await collect(model)
    headers = double.requests[0].headers
    assert (headers["x-team"], headers["x-org"], headers["user-agent"]) == ("blue", "acme", "mine")
    assert headers.keys().isdisjoint({"x-none", "x-empty"})


async def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with provider_double(events(COMPLETED)) as double:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{double.port}")
        config = ProviderConfig(base_url="http://model.invalid/v1")
        model = build_model("far", config, environ={})
        found = await collect(model)
        await model.close()
    assert isinstance(found[0], RateLimits)
    assert double.requests[0].target == "http://model.invalid/v1/responses"


async def test_a_provider_on_this_machine_needs_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with provider_double(events(COMPLETED)) as double, model_of(double) as model:
        assert (await collect(model))[1:] == [Completed("r")]


@pytest.mark.parametrize("variable", ["CODEX_CA_CERTIFICATE", "SSL_CERT_FILE"])
async def test_a_missing_certificate_file_is_named(variable: str) -> None:
    config = ProviderConfig(base_url="https://127.0.0.1:1")
    model = build_model("x", config, environ={variable: "/no/such/file"})
    with pytest.raises(ModelError, match=f"{variable}.*no/such/file"):
        await collect(model)
    await model.close()


async def test_the_models_of_a_provider_are_listed() -> None:
    document = {"object": "list", "data": [{"id": "a"}, {"id": "b"}]}
    async with provider_double(refusal("200 OK", document)) as double, model_of(double) as model:
        assert await model.list_models() == ["a", "b"]
    assert (double.requests[0].method, double.requests[0].target) == ("GET", "/v1/models")


async def test_a_provider_without_a_list_is_reported() -> None:
    async with provider_double(refusal("404 Not Found", {})) as double, model_of(double) as model:
        assert await model.list_models() is None


async def test_a_list_that_is_not_json_is_an_error_of_the_provider() -> None:
    answer = Answer(pieces=[b"<html>busy</html>"])
    async with provider_double(answer) as double, model_of(double) as model:
        with pytest.raises(ModelError, match="/v1/models is not JSON"):
            await model.list_models()


async def test_a_list_that_is_too_large_is_not_read_completely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MAX_DOCUMENT_BYTES", 1000)
    answer = Answer(pieces=[b"[", b" " * 1000], is_silent_after=True)
    async with provider_double(answer) as double, model_of(double) as model:
        with pytest.raises(ModelError, match="/v1/models has more than 1000 bytes"):
            await model.list_models()


@pytest.mark.parametrize("wire_api", ["responses", "chat", "anthropic"])
@pytest.mark.parametrize(
    "values",
    [b"[%b]" % b",".join([b"{}"] * (MAX_CONTAINERS + 1)), b"[" * 200 + b"]" * 200],
    ids=["objects", "nested"],
)
async def test_a_document_in_place_of_a_stream_has_the_limits_of_an_event(
    wire_api: str, values: bytes
) -> None:
    body = b'{"type":"response.completed","response":{"id":"r","x":%b}}' % values
    answer = Answer(headers={"content-type": "application/json"}, pieces=[body])
    caught = await failed(answer, wire_api=wire_api)
    assert caught.message == "the response is a document with too deep nesting or too many parts"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b'{"error":' * 5_000,
        b'{"error":{"message":"x","resets_in_seconds":%b}}' % (b"9" * 400),
        b'{"error":{"message":"x","resets_at":%b,"code":%b}}' % (b"9" * 400, b"9" * 400),
    ],
    ids=["nested", "not closed", "huge delay", "huge time"],
)
async def test_a_strange_error_body_leaves_its_status(body: bytes) -> None:
    answer = Answer(status="503 Service Unavailable", pieces=[body])
    caught = await failed(answer)
    assert (caught.info, caught.http_status, caught.is_retryable, caught.retry_after_s) == (
        "serverOverloaded",
        503,
        True,
        None,
    )


async def test_closing_the_model_ends_an_endless_body() -> None:
    answer = events(COMPLETED, is_silent_after=True)
    async with provider_double(answer) as double:
        async with model_of(double) as model:
            await collect(model)
        await double.hung_up.wait()


async def test_an_error_document_with_status_200_is_an_error() -> None:
    document = {"error": {"code": "server_is_overloaded", "message": "busy"}}
    caught = await failed(refusal("200 OK", document))
    assert (caught.message, caught.info, caught.is_retryable) == ("busy", "serverOverloaded", True)
