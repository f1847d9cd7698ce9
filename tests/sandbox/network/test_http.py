"""How the egress proxy parses the head of a request."""

from __future__ import annotations

import pytest

from treadle.sandbox.network.http import ProxyRequest, read_request
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
        ((b"Transfer-Encoding: chunked", b"Content-Length: 0"), True),
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
