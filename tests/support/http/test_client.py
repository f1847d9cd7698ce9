"""The HTTP client: framing, kept connections, proxies and hostile servers, over real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from treadle.support.http.address import Address
from treadle.support.http.client import ConnectTimeout, HttpClient
from treadle.support.http.connection import MAX_HEAD, MAX_UNREAD, ClientResponse
from treadle.support.http.errors import HttpDisconnected, HttpError, UnsendableRequest

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Site:
    """A server that plays a function for each connection, and counts connections and requests."""

    def __init__(self, serve: Serve, scheme: str = "http") -> None:
        self._serve = serve
        self._scheme = scheme
        self.connections = 0
        self.port = 0
        self.serving: set[asyncio.Task[None] | None] = set()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/path"

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.serving.add(asyncio.current_task())
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has what it wants
        finally:
            writer.transport.abort()


@asynccontextmanager
async def site(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    it = Site(serve, "https" if context else "http")
    server = await asyncio.start_server(it.accept, "127.0.0.1", 0, ssl=context)
    async with asyncio.timeout(20), server:
        it.port = server.sockets[0].getsockname()[1]
        yield it
        for task in it.serving:
            if task is not None:
                task.cancel()


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    it = HttpClient(connect_seconds=10)
    yield it
    it.close()
    await asyncio.sleep(0)


def answers(*responses: bytes) -> Serve:
    """Answer each request of a connection with the next response, then close it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for response in responses:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response)
            await writer.drain()

    return serve


async def body_of(response: ClientResponse) -> bytes:
    body = b""
    while chunk := await response.read():
        body += chunk
    return body


async def get(client: HttpClient, url: str) -> bytes:
    return await body_of(await client.request("GET", url, headers={}))


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (OK, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
            b"abc",
        ),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK, b"ok"),
    ],
    ids=["length", "without body", "until the end", "chunks", "hints"],
)
async def test_a_body_ends_where_its_framing_says(
    client: HttpClient, response: bytes, body: bytes
) -> None:
    async with site(answers(response)) as server:
        assert await get(client, server.url) == body


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
    ],
)
async def test_a_body_that_is_cut_is_an_error_after_what_has_arrived(
    client: HttpClient, response: bytes
) -> None:
    async with site(answers(response)) as server:
        answer = await client.request("GET", server.url, headers={})
        assert await answer.read() == b"ab"
        with pytest.raises(HttpDisconnected):
            await answer.read()


@pytest.mark.parametrize(
    "response",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 2 * MAX_HEAD,
        b"HTTP/1.1 100 Continue\r\n\r\n" * MAX_HEAD,
    ],
    ids=["no http", "two lengths", "length and chunks", "upgrade", "long head", "hints for ever"],
)
async def test_what_is_not_one_response_is_an_error(client: HttpClient, response: bytes) -> None:
    async with site(answers(response)) as server:
        with pytest.raises(HttpError):
            await get(client, server.url)


async def test_fields_of_one_name_are_joined(client: HttpClient) -> None:
    fields = b"A: 1\r\nb: 2\r\na: 3\r\n"
    async with site(
        answers(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + fields + b"\r\n")
    ) as server:
        answer = await client.request("GET", server.url, headers={})
        assert answer.headers == {"content-length": "0", "a": "1, 3", "b": "2"}


async def test_trailers_without_end_are_an_error(client: HttpClient) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
    async with site(answers(head + b"x: y\r\n" * MAX_HEAD)) as server:
        with pytest.raises(HttpError, match="headers"):
            await get(client, server.url)


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 042 x\r\ncontent-length: 3\r\n\r\nabc" * (MAX_HEAD // 16),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        b"1;x=" + (b"y" * 1_000 + b"\r\nz\r\n1;x=") * (MAX_HEAD // 500),
    ],
    ids=["responses before the real one", "extensions of chunks"],
)
async def test_a_part_of_a_body_does_not_excuse_everything_before_it(
    client: HttpClient, response: bytes
) -> None:
    async with site(answers(response)) as server:
        with pytest.raises(HttpError, match="headers"):
            await get(client, server.url)


async def test_a_body_in_chunks_of_one_byte_is_read(client: HttpClient) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with site(answers(head + b"1\r\nx\r\n" * MAX_HEAD + b"0\r\n\r\n")) as server:
        assert await get(client, server.url) == b"x" * MAX_HEAD


async def test_a_connection_serves_the_next_request(client: HttpClient) -> None:
    async with site(answers(OK, OK, OK)) as server:
        assert [await get(client, server.url) for _ in range(3)] == [b"ok"] * 3
        assert server.connections == 1


async def test_requests_at_the_same_time_have_connections_of_their_own(client: HttpClient) -> None:
    async with site(answers(OK)) as server, asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(get(client, server.url)) for _ in range(3)]
        assert [await each for each in waiting] == [b"ok"] * 3
        assert server.connections == 3


@pytest.mark.parametrize(
    "first",
    [
        OK,  # and the server closes the connection
        OK + OK,
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
    ids=["closed", "second response", "half of a second one", "close", "http/1.0"],
)
async def test_a_connection_that_may_answer_wrongly_is_replaced(
    client: HttpClient, first: bytes
) -> None:
    """Bytes that no request explains would become the answer to the next request."""
    plays = iter([answers(first), answers(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nnew")])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next(plays)(reader, writer)

    async with site(serve) as server:
        assert await get(client, server.url) == b"ok"
        assert await get(client, server.url) == b"new"
        assert server.connections == 2


async def test_a_request_that_may_have_been_received_is_not_sent_again(client: HttpClient) -> None:
    """Only a kept connection that closes without a byte shows that its request is lost."""
    async with site(answers(OK, b"HTTP/1.1 200")) as server:
        assert await get(client, server.url) == b"ok"
        with pytest.raises(HttpDisconnected):
            await get(client, server.url)
        assert server.connections == 1


async def test_a_refusal_arrives_before_the_whole_body_is_sent(client: HttpClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await asyncio.Event().wait()  # reads no more

    async with site(serve) as server:
        answer = await client.request("POST", server.url, headers={}, body=bytes(32 * 2**20))
        assert (answer.status, await body_of(answer)) == (413, b"no")
        assert answer.is_closed


async def test_a_large_body_arrives_whole(client: HttpClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: 8388608\r\n" in head
        received = await reader.readexactly(8 * 2**20)
        writer.write(OK if received == b"x" * len(received) else b"HTTP/1.1 400 Bad\r\n\r\n")

    async with site(serve) as server:
        answer = await client.request("POST", server.url, headers={}, body=b"x" * 8 * 2**20)
        assert answer.status == 200


async def test_a_server_waits_for_a_client_that_does_not_read(client: HttpClient) -> None:
    async with site(answers(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(64 * 2**20))) as server:
        answer = await client.request("GET", server.url, headers={})
        size = 0
        while chunk := await answer.read():
            size += len(chunk)
            assert len(chunk) <= 2 * MAX_UNREAD
            # Time in which all would arrive that the server may send.
            for _ in range(20):
                await asyncio.sleep(0)
        assert size == 64 * 2**20


async def test_a_closed_response_fails_its_reader(client: HttpClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.read()

    async with site(serve) as server, asyncio.TaskGroup() as tasks:
        answer = await client.request("GET", server.url, headers={})
        reading = tasks.create_task(_expect_disconnected(answer))
        await asyncio.sleep(0)
        answer.close()
        await reading


async def _expect_disconnected(answer: ClientResponse) -> None:
    with pytest.raises(HttpDisconnected):
        await answer.read()


@pytest.mark.parametrize(
    "url",
    ["ftp://host/", "http:///path", "http://host:99999/", "http://[::1", "http://a b/", "host/x"],
)
def test_an_invalid_address_is_named_before_anything_is_sent(url: str) -> None:
    with pytest.raises(UnsendableRequest, match="URL"):
        Address.parse(url)


def test_an_address_is_encoded_once() -> None:
    address = Address.parse("https://bücher.example/ä b/%20?q=ö&r=%C3%B6#part")
    assert address.origin.header == "xn--bcher-kva.example"
    assert address.target == "/%C3%A4%20b/%20?q=%C3%B6&r=%C3%B6"
    assert Address.parse("http://[::1]:8080").url == "http://[::1]:8080/"


@pytest.mark.parametrize(
    "headers", [{"x": "a\r\ny: b"}, {"x": "a\0"}, {"x y": "a"}, {"x\r\ny": "a"}, {"": "a"}]
)
async def test_a_header_cannot_add_another_one(client: HttpClient, headers: dict[str, str]) -> None:
    with pytest.raises(UnsendableRequest, match="header"):
        await client.request("GET", "http://127.0.0.1:1/", headers=headers)


async def test_a_host_that_does_not_answer_is_given_up() -> None:
    client = HttpClient(connect_seconds=0.01)

    async def serve(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    # The server accepts and never begins the encryption.
    async with site(serve) as server:
        with pytest.raises(ConnectTimeout):
            await get(client, server.url.replace("http:", "https:"))


class Certificate:
    """A certificate for 127.0.0.1 and its authority."""

    def __init__(self) -> None:
        self._authority = trustme.CA()
        self._leaf = self._authority.issue_cert("127.0.0.1")

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._leaf.configure_cert(context)
        return context

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self._authority.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return Certificate()


async def test_a_certificate_of_a_known_authority_is_accepted(certificate: Certificate) -> None:
    client = HttpClient(connect_seconds=10, context=certificate.client())
    async with site(answers(OK), certificate.server()) as server:
        assert await get(client, server.url) == b"ok"
    client.close()


async def test_a_certificate_of_an_unknown_authority_is_refused(certificate: Certificate) -> None:
    client = HttpClient(connect_seconds=10)
    async with site(answers(OK), certificate.server()) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            await get(client, server.url)


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain proxy", "encrypted proxy"])
async def test_an_encrypted_request_goes_through_a_tunnel(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch, is_encrypted: bool
) -> None:
    requested: list[bytes] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.append(await reader.readuntil(b"\r\n\r\n"))
        port = int(requested[0].split()[1].rpartition(b":")[2])
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_forward(reader, far_writer))
            tasks.create_task(_forward(far_reader, writer))

    client = HttpClient(connect_seconds=10, context=certificate.client())
    context = certificate.server() if is_encrypted else None
    async with (
        site(answers(OK, OK), certificate.server()) as server,
        site(tunnel, context) as proxy,
    ):
        address = proxy.url.removesuffix("/path").replace("://", "://user:p%40ss@")
        monkeypatch.setenv("https_proxy", address)
        assert await get(client, server.url) == b"ok"
        assert await get(client, server.url) == b"ok"
        assert len(requested) == 1
        assert requested[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n".encode())
        assert b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in requested[0]
        client.close()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(2**16):
            writer.write(data)
    except ConnectionError:
        pass  # one side is gone
    finally:
        writer.transport.abort()


async def test_a_tunnel_that_is_refused_is_an_error(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(answers(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        with pytest.raises(HttpError, match="407"):
            await get(client, "https://host.example/")


async def test_a_plain_request_names_the_server_to_the_proxy(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)

    async with site(serve) as proxy:
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
        assert await get(client, "http://host.example/x?y") == b"ok"
        assert requested[0].startswith(b"GET http://host.example/x?y HTTP/1.1\r\n")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await get(client, proxy.url) == b"ok"
        assert requested[1].startswith(b"GET /path HTTP/1.1\r\n")


async def test_an_invalid_proxy_is_named(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(UnsendableRequest, match=r"http_proxy: .* not 'socks5'"):
        await get(client, "http://host.example/")
