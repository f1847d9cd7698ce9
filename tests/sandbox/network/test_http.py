"""How the egress proxy parses the head of a request."""

from __future__ import annotations

import asyncio
import socket

import pytest

from treadle.sandbox.network.body import InvalidBody, forward_body
from treadle.sandbox.network.http import MAX_FIELDS, MAX_HEAD, ProxyRequest, read_request
from treadle.sandbox.network.policy import Destination


def request(*lines: bytes) -> bytes:
    return b"\r\n".join([*lines, b"", b""])


def test_fields_for_the_proxy_are_not_forwarded() -> None:
    head = request(
        b"GET http://Allowed.test/page HTTP/1.1",
        *(b"HOST: other.test", b"Proxy-Authorization: Basic x", b"Connection: keep-alive"),
        *(b"X-Kept: a\xffb", b"Accept: */*"),
    )

    assert read_request(head) == ProxyRequest(
        "GET",
        Destination("allowed.test", 80, "http"),
        request(
            b"GET /page HTTP/1.1",
            *(b"Host: allowed.test", b"X-Kept: a\xffb", b"Accept: */*", b"Connection: close"),
        ),
    )


def test_a_path_in_another_script_is_percent_encoded() -> None:
    head = request("GET http://allowed.test/caf\u00e9 HTTP/1.1".encode(), b"Host: x")

    assert read_request(head).head.startswith(b"GET /caf%C3%A9 HTTP/1.1\r\n")


def test_http_1_0_needs_no_host() -> None:
    head = request(b"CONNECT allowed.test:443 HTTP/1.0")

    assert read_request(head).destination == Destination("allowed.test", 443, "https")


@pytest.mark.parametrize(
    ("fields", "has_body"),
    [
        ((), False),
        ((b"Content-Length: 0",), False),
        ((b"Content-Length: 5",), True),
        ((b"Transfer-Encoding: chunked",), True),
        ((b"Content-Length: 00",), False),
    ],
)
def test_a_body_is_recognised_by_its_framing(fields: tuple[bytes, ...], has_body: bool) -> None:
    head = request(b"GET http://allowed.test/ HTTP/1.1", b"Host: x", *fields)

    assert read_request(head).has_body is has_body


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (b"Host: x", b"Host: y"),
        (b"Host: x", b"Content-Length: 0", b"Content-Length: 5"),
        (b"Host: x", b"Content-Length: -1"),
        (b"Host: x", b"Transfer-Encoding: gzip, chunked"),
        (b"Host: x", b"Transfer-Encoding: chunked", b"Content-Length: 4"),
        (b"Host: x", b"Content-Length: 0", b"Transfer-Encoding: chunked"),
        (b"Host: x", b"X : y"),
        (b"Host: x", b": y"),
        (b"Host: x", b"X: a\rb"),
        (b"Host: x", b"X: a\x01b"),
        (b"Host: x", b"X: a\nContent-Length: 5"),
    ],
)
def test_a_head_that_programs_read_differently_is_invalid(fields: tuple[bytes, ...]) -> None:
    """A proxy and a host that disagree about a head are how requests are smuggled."""
    with pytest.raises(ValueError, match=r"."):
        read_request(request(b"GET http://allowed.test/ HTTP/1.1", *fields))


def test_chunks_need_http_1_1() -> None:
    head = request(b"POST http://allowed.test/ HTTP/1.0", b"Transfer-Encoding: chunked")
    with pytest.raises(ValueError, match=r"HTTP/1.0"):
        read_request(head)


@pytest.mark.parametrize("port", ["+80", "0x50", " 80", "8_0", "-1", "", "0", "65536", "\u0668"])
def test_a_port_consists_of_digits(port: str) -> None:
    head = request(f"CONNECT allowed.test:{port} HTTP/1.1".encode(), b"Host: x")
    with pytest.raises(ValueError, match=r"."):
        read_request(head)


def test_a_head_is_limited_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """120 heads of 64 KiB with 16,000 fields each blocked the server for 8 seconds."""
    start = (b"GET http://allowed.test/ HTTP/1.1", b"Host: x")
    assert read_request(request(*start, *[b"a:"] * (MAX_FIELDS - 1))).method == "GET"
    monkeypatch.setattr("h11.Connection", None)
    with pytest.raises(ValueError, match="more than 200 fields"):
        read_request(request(*start, *[b"a:"] * MAX_FIELDS))
    with pytest.raises(ValueError, match="more than 16384 bytes"):
        read_request(request(*start, b"a: " + b"b" * MAX_HEAD))


async def forwarded(data: bytes, length: int | None) -> bytes:
    """Return what of some data is forwarded as the body of a request."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    near, far = socket.socketpair()
    received, upstream = await asyncio.open_connection(sock=near)
    _unused, writer = await asyncio.open_connection(sock=far)
    try:
        await forward_body(reader, writer, length)
        writer.write_eof()
        return await received.read()
    finally:
        upstream.close()
        writer.close()
        await upstream.wait_closed()
        await writer.wait_closed()


SMUGGLED = b"POST http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "length", "expected"),
    [
        (b"", 0, b""),
        (b"hello", 5, b"hello"),
        (b"0\r\n\r\n", None, b"0\r\n\r\n"),
        (
            b"2\r\nab\r\n0A;x=1\r\n0123456789\r\n0\r\nT: x\r\n\r\n",
            None,
            b"2\r\nab\r\na\r\n0123456789\r\n0\r\n\r\n",
        ),
        (b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n", None, b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n"),
    ],
    ids="none length empty chunks many".split(),
)
async def test_only_the_declared_body_is_forwarded(
    body: bytes, length: int | None, expected: bytes
) -> None:
    """What follows could be another request, whose host was not checked."""
    assert await forwarded(body + SMUGGLED, length) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"+1\r\nx\r\n",
        b"1\nx\n",
        b"1\r\nxy\r\n",
        b"0x1\r\nx\r\n",
        b"\r\n",
        b"g\r\n",
        b"-1\r\n",
        b"1_0\r\n",
        b"1;a\nb\r\nx\r\n",
        b"f" * 16 + b"\r\n",
        b"1" * 200000,
        b"0\r\n" + b"T: x\r\n" * 300,
    ],
)
async def test_invalid_chunks_are_not_forwarded(body: bytes) -> None:
    with pytest.raises(InvalidBody):
        await forwarded(body + b"\r\n0\r\n\r\n", None)
