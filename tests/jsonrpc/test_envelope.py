"""Classifying messages as requests, notifications, answers or malformed."""

from __future__ import annotations

import json

import msgspec
import pytest

from treadle.jsonrpc import envelope
from treadle.jsonrpc.envelope import (
    ErrorMessage,
    MalformedMessage,
    NotificationMessage,
    RequestMessage,
    ResponseMessage,
)
from treadle.jsonrpc.errors import (
    AlreadyInitialized,
    ErrorObject,
    ExperimentalApiRequired,
    InternalError,
    InvalidParams,
    MethodNotFound,
    NotImplementedYet,
    NotInitialized,
    Overloaded,
    RpcError,
)
from treadle.jsonrpc.framing import Frame, Oversized


@pytest.mark.parametrize("id_", [0, -1, 2**63, 2**70, "", "x"])
def test_a_method_and_an_id_make_a_request(id_: int | str) -> None:
    frame = json.dumps({"id": id_, "method": "a/b"}).encode()
    assert envelope.decode(frame) == RequestMessage(id_, "a/b", None)


def test_a_method_alone_makes_a_notification() -> None:
    assert envelope.decode(b'{"method":"a/b"}') == NotificationMessage("a/b", None)


def test_params_are_kept_as_they_arrived() -> None:
    message = envelope.decode(b'{"id":1,"method":"m","params": {"a" : 1.50} }')
    assert isinstance(message, RequestMessage)
    assert message.params is not None
    assert bytes(message.params) == b'{"a" : 1.50}'


def test_null_params_count_as_absent() -> None:
    assert envelope.decode(b'{"id":1,"method":"m","params":null}') == RequestMessage(1, "m", None)


def test_a_result_makes_an_answer_even_when_it_is_null() -> None:
    answer = envelope.decode(b'{"id":1,"result":null}')
    assert isinstance(answer, ResponseMessage)
    assert (answer.id, bytes(answer.result)) == (1, b"null")


def test_a_null_error_beside_a_result_does_not_count() -> None:
    """Some JSON-RPC libraries always write both members."""
    answer = envelope.decode(b'{"id":1,"result":{},"error":null}')
    assert isinstance(answer, ResponseMessage)
    assert bytes(answer.result) == b"{}"


def test_an_error_makes_an_error_answer() -> None:
    frame = b'{"id":1,"error":{"code":-1,"message":"no","data":[1]}}'
    assert envelope.decode(frame) == ErrorMessage(1, ErrorObject(-1, "no", [1]))


@pytest.mark.parametrize("error", ["no", 5, None, {"code": "x"}])
def test_an_error_of_any_shape_is_an_error_answer(error: object) -> None:
    frame = json.dumps({"id": 1, "error": error}).encode()
    message = "the peer sent an invalid error object"
    assert envelope.decode(frame) == ErrorMessage(1, ErrorObject(-32600, message, error))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"null",
        b"{}",
        b'{"id":null,"method":"m"}',
        b'{"id":1.5,"method":"m"}',
        b'{"id":true,"method":"m"}',
        b'\xef\xbb\xbf{"id":1,"method":"m"}',
    ],
)
def test_an_unclassifiable_message_is_malformed_and_never_an_exception(frame: bytes) -> None:
    message = envelope.decode(frame)
    assert isinstance(message, MalformedMessage)
    assert (message.id, message.method) == (None, None)
    assert message.reason


@pytest.mark.parametrize(
    "frame",
    [
        b'{"id":1,"method":"m"} x',
        b'{"id":1,"method":"m","params":{"x":"\\ud800"}}',
        b'{"id":1,"method":"m","params":' + b"[" * 100_000,
    ],
)
def test_a_truncated_request_is_malformed_but_keeps_its_id(frame: bytes) -> None:
    message = envelope.decode(frame)
    assert isinstance(message, MalformedMessage)
    assert (message.id, message.method) == (1, "m")


@pytest.mark.parametrize(
    ("head", "id_", "method"),
    [
        (b'{"id":7,"method":"m","params":{"x":"', 7, "m"),
        (b' { "method" : "m" , "id" : "a" , "params":[', "a", "m"),
        (b'{"jsonrpc":"2.0","id":-1,"method":"m","params":"', -1, "m"),
        (b'{"method":"m","params":{"id":7', None, None),
        (b'{"params":{"x":"', None, None),
        (b'{"id":true,"method":"m","params":"', None, None),
        (b'{"id":1.5,"method":"m","params":"', None, None),
        (b'{"id":7,"method":"m', 7, None),
        (b"\xff" * 100, None, None),
        (b"", None, None),
        (b"[[[[", None, None),
    ],
)
def test_an_oversized_request_keeps_its_id_if_it_is_in_the_head(
    head: bytes, id_: int | str | None, method: str | None
) -> None:
    reason = "a message of 99 bytes is too large"
    assert envelope.decode(Oversized(99, head)) == MalformedMessage(reason, id_, method)


@pytest.mark.parametrize("method", [b"5", b"null", b"[]", b'"\xff"', b'"\\ud800"'])
@pytest.mark.parametrize("id_", [7, "7"])
def test_a_request_whose_method_is_not_a_string_keeps_its_id(id_: int | str, method: bytes) -> None:
    frame = b'{"id":%b,"method":%b}' % (json.dumps(id_).encode(), method)
    message = envelope.decode(frame)
    assert isinstance(message, MalformedMessage)
    assert (message.id, message.method) == (id_, None)


def test_a_request_with_a_long_id_and_a_wrong_method_keeps_its_id() -> None:
    id_ = "x" * 100_000
    message = envelope.decode(json.dumps({"id": id_, "method": 5}).encode())
    assert isinstance(message, MalformedMessage)
    assert message.id == id_


@pytest.mark.parametrize(
    "frame",
    [
        b'{"id":"\\ud800","method":"m"}',
        b'{"method":5,"id":"\\ud800"}',
        Oversized(99, b'{"id":"' + b"x" * 4000),
    ],
)
def test_a_request_whose_id_cannot_be_echoed_is_recognised(frame: Frame) -> None:
    message = envelope.decode(frame)
    assert isinstance(message, MalformedMessage)
    assert (message.id, message.is_unnamed) == (None, True)


@pytest.mark.parametrize(
    "frame",
    [
        b'{"id":null,"method":"m"}',  # how JSON-RPC 1.0 writes a notification
        b'{"id":null,"error":{"code":-32600,"message":"no"}}',
        b'{"id":1.5,"method":"m"}',  # the reference reads these as notifications, too
        b'{"method":"m","id":true}',
        b'{"id":["a"],"method":"m"}',
        b'{"id":1.5,"result":{}}',
        b'{"id":"\\ud800","result":{}}',
        b'{"method":5}',
        b"[]",
    ],
)
def test_a_message_that_may_not_be_a_request_is_not_answered(frame: bytes) -> None:
    message = envelope.decode(frame)
    assert isinstance(message, MalformedMessage)
    assert (message.id, message.is_unnamed) == (None, False)


@pytest.mark.parametrize(
    "frame",
    [
        b'{"id":7}',
        b'{"jsonrpc":"2.0","id":7}',
        b'{"id":7,"result":{',
        b'{"id":7,"result":"\\ud800"}',
        b'{"result":"\\ud800","id":7}',
        b'{"id":7,"error":nonsense}',
        b'{"id":7,"result":{}} x',
        Oversized(99, b'{"id":7,"result":"'),
    ],
)
def test_an_unreadable_answer_counts_as_an_error(frame: Frame) -> None:
    """Dropping it would leave the request pending for ever."""
    message = envelope.decode(frame)
    assert isinstance(message, ErrorMessage)
    assert message.id == 7


@pytest.mark.parametrize(
    "head", [b'{"id":7,"params":{', b'{"id":7,"result":1,"method":', b'{"id":7', b'{"result":{']
)
def test_a_message_that_may_not_be_an_answer_fails_no_request(head: bytes) -> None:
    assert isinstance(envelope.decode(Oversized(99, head)), MalformedMessage)


def test_messages_are_written_in_the_layout_of_the_protocol() -> None:
    assert (
        envelope.encode_request(0, "m", {"a": None}) == b'{"method":"m","id":0,"params":{"a":null}}'
    )
    assert envelope.encode_request("x", "m", None) == b'{"method":"m","id":"x"}'
    assert envelope.encode_response(1, {}) == b'{"id":1,"result":{}}'
    assert envelope.encode_response("", None) == b'{"id":"","result":null}'
    assert (
        envelope.encode_error(1, ErrorObject(-32600, "no"))
        == b'{"error":{"code":-32600,"message":"no"},"id":1}'
    )
    assert envelope.encode_notification("m", {}) == b'{"method":"m","params":{}}'
    assert (
        envelope.encode_notification("m", {}, 1700)
        == b'{"method":"m","params":{},"emittedAtMs":1700}'
    )


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (MethodNotFound("x"), -32600, "methodNotFound"),
        (InvalidParams("x"), -32600, "invalidParams"),
        (NotInitialized(), -32600, "notInitialized"),
        (AlreadyInitialized(), -32600, "alreadyInitialized"),
        (ExperimentalApiRequired("m.f"), -32600, "experimentalApiRequired"),
        (NotImplementedYet("m"), -32601, "notImplemented"),
        (InternalError("x"), -32603, "internalError"),
        (Overloaded(), -32001, "overloaded"),
    ],
)
def test_each_error_has_its_code_and_names_its_kind(error: RpcError, code: int, kind: str) -> None:
    assert (error.code, error.kind) == (code, kind)
    line = envelope.encode_error(1, error.to_object())
    message = envelope.decode(line)
    assert isinstance(message, ErrorMessage)
    back = RpcError.from_object(message.error)
    assert (back.code, back.message, back.data) == (error.code, error.message, error.data)


def test_an_error_without_data_names_no_kind() -> None:
    assert RpcError(-1, "no").kind is None
    assert msgspec.json.encode(RpcError(-1, "no").to_object()) == b'{"code":-1,"message":"no"}'
