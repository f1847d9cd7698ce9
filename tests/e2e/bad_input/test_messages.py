"""After any invalid input, the next valid request on the same connection is answered."""

from __future__ import annotations

import json
import random

import pytest

from tests.harness.lines import Connect, in_memory
from tests.harness.peer import Peer
from treadle.jsonrpc.framing import MAX_MESSAGE_BYTES
from treadle.protocol.base import JsonValue

MOCK = b'{"id":1,"method":"mock/experimentalMethod","params":%s}'
DEEP = b"[" * 100_000 + b"]" * 100_000

DROPPED = {
    "a byte order mark": b"\xef\xbb\xbf" + MOCK % b"{}",
    "utf-16": (MOCK % b"{}").decode().encode("utf-16-be"),
    "a leading NUL": b"\0" + MOCK % b"{}",
    "NULs only": b"\0" * 100,
    "deep nesting": DEEP,
    "brackets that never close": b"[" * 100_000,
    "a batch": b"[" + MOCK % b"{}" + b"," + MOCK % b"{}" + b"]",
    "an empty batch": b"[]",
    "an id of 5,000 digits": b'{"id":' + b"1" * 5000 + b',"method":"m"}',
    "a boolean id": b'{"id":true,"method":"m"}',
    "a list as id": b'{"id":[1],"method":"m"}',
    "null": b"null",
    "blanks": b" \t ",
    "a carriage return": b"\r",
}


UNREADABLE = {
    "a lone surrogate in the params": MOCK % b'{"value":"\\ud800"}',
    "a lone low surrogate in the params": MOCK % b'{"value":"\\udc00x"}',
    "deep nesting in the params": MOCK % DEEP,
    "deep nesting in an unknown member": b'{"id":1,"method":"m","x":' + DEEP + b"}",
    "two messages in one": MOCK % b"{}" + MOCK % b"{}",
    "NaN": MOCK % b'{"value":NaN}',
    "a lone surrogate in the method": b'{"id":1,"method":"\\ud800"}',
    "truncated utf-8 in the method": b'{"id":1,"method":"m\xe2\x82"}',
    "a number as method": b'{"id":1,"method":5}',
    "an unfinished text": b'{"id":1,"method":"m',
}


def refusal(message: str, path: str) -> list[JsonValue]:
    method = "mock/experimentalMethod"
    text = f"Invalid request: {message} in the params of {method}"
    data = {"kind": "invalidParams", "method": method, "path": path}
    return [{"error": {"code": -32600, "message": text, "data": data}, "id": 1}]


async def test_frames_without_a_request_are_dropped(connect: Connect) -> None:
    """Upstream drops them too, and ignores all input after the first line of invalid UTF-8."""
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        for about, frame in DROPPED.items():
            assert await peer.replies(frame) == [], about
        assert await peer.echo("well") == "well"


async def test_a_request_with_invalid_syntax_is_answered_by_its_id(
    connect: Connect,
) -> None:
    """Ours: upstream drops these, and their sender waits forever."""
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        for about, frame in UNREADABLE.items():
            (answer,) = await peer.replies(frame)
            assert (answer["id"], answer["error"]["code"]) == (1, -32600), about
        assert await peer.echo("well") == "well"


@pytest.mark.parametrize("connect", ["stdio", "memory"], indirect=True)
async def test_invalid_text_in_params_is_rejected_by_name(connect: Connect) -> None:
    """Not over WebSocket, where such a text frame violates the protocol."""
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        assert await peer.replies(MOCK % b'{"value":"\xe2\x82"}') == refusal(
            "not readable as JSON: 'utf-8' codec can't decode bytes in position 0-1: "
            "unexpected end of data",
            "",
        )
        assert await peer.echo("well") == "well"


async def test_numbers_of_any_size_are_read_or_rejected(connect: Connect) -> None:
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        for number in (2**63, -(2**63) - 1, 2**64, 10**300):
            frame = MOCK % b'{"value":%d}' % number
            (answer,) = await peer.replies(frame)
            assert answer["error"]["data"]["path"] == "value"
        many = MOCK % b'{"value":"x","unknown":[1e999,-1e999,%d]}' % 10**400
        assert await peer.replies(many) == [{"id": 1, "result": {"echoed": "x"}}]


async def test_line_ends_and_whitespace_around_a_message_are_ignored(connect: Connect) -> None:
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        plain = MOCK % b"{}"
        for frame in (plain + b"\r", b" \t" + plain + b" ", plain.replace(b",", b" , ")):
            assert await peer.replies(frame) == [{"id": 1, "result": {"echoed": None}}]


async def test_the_first_line_may_be_invalid(connect: Connect) -> None:
    """Over stdio other code reads the first line."""
    # Sockets accept at most 64 KiB before `initialize`.
    deep = DEEP[70_000:130_000]
    async with connect() as peer:
        for frame in (b"\xef\xbb\xbf{}", b"{not json", b"[]", b"{}", b"", b"\0", deep):
            assert await peer.replies(frame) == []
        await peer.initialize(experimentalApi=True)
        assert await peer.echo("well") == "well"


def hostile(generator: random.Random) -> bytes:
    """A line of noise, or a message with some bytes replaced by noise."""
    if generator.random() < 0.5:
        return generator.randbytes(generator.randrange(1, 120)).replace(b"\n", b" ")
    message = bytearray(MOCK % b'{"value":"x"}')
    for _ in range(generator.randrange(1, 6)):
        message[generator.randrange(len(message))] = generator.randrange(11, 256)
    return bytes(message)


async def test_ten_thousand_random_lines_have_no_effect(connect: Connect) -> None:
    generator = random.Random(20_2607)  # noqa: S311 - the same noise in every run
    lines = [hostile(generator) for _ in range(10_000)]
    async with connect() as peer:
        if peer.transport.peer.startswith(("ws", "unix")):
            # Invalid UTF-8 closes the whole connection, one layer below.
            lines = [line.decode("latin-1").encode() for line in lines]
        await peer.initialize(experimentalApi=True)
        for start in range(0, len(lines), 500):
            answers = await peer.replies(*lines[start : start + 500])
            assert all("id" in answer for answer in answers)
            assert await peer.echo(str(start)) == str(start)


async def ask_of_size(peer: Peer, size: int, *, head: bytes = b'"id":7,') -> list[JsonValue]:
    frame = b"{" + head + b'"method":"mock/experimentalMethod","params":{"unknown":"'
    frame += b"x" * (size - len(frame) - 3) + b'"}}'
    assert len(frame) == size
    return await peer.replies(frame)


@pytest.mark.timeout(120)
async def test_a_message_of_64_mib_is_read_and_a_larger_one_fails_alone(connect: Connect) -> None:
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        assert await ask_of_size(peer, MAX_MESSAGE_BYTES) == [{"id": 7, "result": {"echoed": None}}]
        size = MAX_MESSAGE_BYTES + 1
        message = f"Invalid request: a message of {size} bytes is too large"
        data = {"kind": "invalidRequest", "method": "mock/experimentalMethod"}
        assert await ask_of_size(peer, size) == [
            {"error": {"code": -32600, "message": message, "data": data}, "id": 7}
        ]
        assert await peer.echo("well") == "well"


async def test_an_oversized_message_whose_id_comes_late_is_dropped() -> None:
    late = b'"padding":"' + b"x" * 5000 + b'","id":7,'
    async with in_memory() as peer:
        await peer.initialize(experimentalApi=True)
        assert await ask_of_size(peer, MAX_MESSAGE_BYTES + 1, head=late) == []
        assert await peer.echo("well") == "well"


async def test_answers_are_valid_json_whatever_was_echoed(connect: Connect) -> None:
    texts = ["", "\u2028\u2029", "\x00\x1f\x7f", "😀" * 1000, '"\\/\n', json.dumps({"a": [1]})]
    async with connect() as peer:
        await peer.initialize(experimentalApi=True)
        assert [await peer.echo(text) for text in texts] == texts
