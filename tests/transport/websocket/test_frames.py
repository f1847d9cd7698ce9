"""The WebSocket codec: bytes in, events out."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.jsonrpc.framing import HEAD_BYTES, Oversized
from treadle.transport.websocket.frames import (
    Binary,
    Close,
    Decoder,
    Encoder,
    Event,
    Ping,
    Pong,
    Violation,
    accept_key,
    xor,
)

LIMIT = 5000


def server_frame(first: int, payload: bytes) -> bytes:
    """Encode an unmasked frame by hand, in its shortest form."""
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65536:
        return bytes((first, 126)) + size.to_bytes(2) + payload
    return bytes((first, 127)) + size.to_bytes(8) + payload


def client_frame(first: int, payload: bytes, key: bytes = b"\x01\x22\x43\xf4") -> bytes:
    """Encode a masked frame by hand."""
    head = server_frame(first, b"\0" * len(payload))[: -len(payload) or None]
    masked = bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))
    return bytes((head[0], head[1] | 0x80)) + head[2:] + key + masked


def decode(data: bytes, cuts: list[int] | None = None, *, masked: bool = True) -> list[Event]:
    decoder = Decoder(masked=masked, limit=LIMIT)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    return [event for a, b in itertools.pairwise(edges) for event in decoder.feed(data[a:b])]


payloads = st.one_of(
    st.binary(max_size=200),
    st.integers(0, LIMIT * 2).map(lambda size: bytes(i % 251 for i in range(size))),
)
controls = st.tuples(st.sampled_from([0x89, 0x8A]), st.binary(max_size=125))
messages = st.tuples(
    st.sampled_from([0x1, 0x2]), st.lists(payloads, min_size=1, max_size=4), st.lists(controls)
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[bytes, list[Event]]:
    """Draw frames with fragments and controls between them, and the events they mean."""
    key = draw(st.binary(min_size=4, max_size=4))
    data, events = b"", list[Event]()
    for opcode, fragments, between in draw(st.lists(messages, max_size=4)):
        for index, fragment in enumerate(fragments):
            final = 0x80 if index == len(fragments) - 1 else 0
            data += client_frame(final | (0 if index else opcode), fragment, key)
            if not final:
                for first, payload in between:
                    data += client_frame(first, payload, key)
                    events.append(Ping(payload) if first == 0x89 else Pong(payload))
        events.append(_meaning(opcode, b"".join(fragments)))
    return data, events


def _meaning(opcode: int, message: bytes) -> Event:
    if opcode == 0x2:
        return Binary(len(message))
    return message if len(message) <= LIMIT else Oversized(len(message), message[:HEAD_BYTES])


@given(conversations(), st.lists(st.integers(0, 50_000), max_size=12))
def test_any_chunking_gives_the_same_events(
    conversation: tuple[bytes, list[Event]], cuts: list[int]
) -> None:
    data, events = conversation

    assert decode(data, cuts) == events


@given(st.lists(st.binary(max_size=300), max_size=5), st.booleans(), st.integers(1, 200))
def test_a_decoder_reads_what_an_encoder_writes(
    texts: list[bytes], masked: bool, max_frame: int
) -> None:
    encoder = Encoder((lambda: b"\x9a\0\x11\xff") if masked else None, max_frame=max_frame)

    data = b"".join(b"".join(encoder.text(text)) for text in texts)

    assert decode(data, masked=masked) == texts


@given(st.binary(max_size=3000))
def test_no_input_makes_the_decoder_raise_and_chunking_changes_nothing(data: bytes) -> None:
    assert decode(data) == decode(data, list(range(len(data))))


@given(st.integers(0, 9000), st.binary(min_size=4, max_size=4))
def test_masking_twice_gives_the_same_bytes(size: int, key: bytes) -> None:
    data = bytes(i % 253 for i in range(size))

    assert xor(data, key) == bytes(byte ^ key[i % 4] for i, byte in enumerate(data))
    assert xor(xor(data, key), key) == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (client_frame(0xC1, b"x"), "reserved bits set"),
        (client_frame(0x91, b"x"), "reserved bits set"),
        (server_frame(0x81, b"x"), "client frame not masked"),
        (client_frame(0x83, b"x"), "unknown opcode 3"),
        (client_frame(0x8B, b"x"), "unknown opcode 11"),
        (client_frame(0x09, b"x"), "fragmented control frame"),
        (client_frame(0x89, b"x" * 126), "control frame too long"),
        (client_frame(0x80, b"x"), "continuation of no message"),
        (
            client_frame(0x01, b"x") + client_frame(0x81, b"y"),
            "new message inside a fragmented one",
        ),
        (bytes((0x81, 0xFF)) + b"\xff" * 12, "frame length beyond 63 bits"),
        (client_frame(0x88, b"x"), "invalid close code"),
        (client_frame(0x88, (1005).to_bytes(2)), "invalid close code"),
        (client_frame(0x88, (2999).to_bytes(2)), "invalid close code"),
    ],
)
def test_a_violation_is_the_last_event_and_closes_with_1002(data: bytes, reason: str) -> None:
    before = client_frame(0x81, b"before")

    events = decode(before + data + client_frame(0x81, b"after"))

    assert events == [b"before", Violation(1002, reason)]


def test_a_masked_server_frame_is_a_violation() -> None:
    assert decode(client_frame(0x81, b"x"), masked=False) == [
        Violation(1002, "server frame masked")
    ]


def test_a_close_reason_that_is_not_utf8_closes_with_1007() -> None:
    data = client_frame(0x88, b"\x03\xe8\xff")

    assert decode(data) == [Violation(1007, "close reason is not UTF-8")]


@pytest.mark.parametrize(
    ("payload", "event"),
    [
        (b"", Close(1005, "")),
        (b"\x03\xe8", Close(1000, "")),
        (b"\x03\xe9bye", Close(1001, "bye")),
        (b"\x0b\xb8", Close(3000, "")),
    ],
)
def test_nothing_follows_a_close(payload: bytes, event: Close) -> None:
    assert decode(client_frame(0x88, payload) + client_frame(0x81, b"x")) == [event]


def test_close_is_written_with_its_code_and_reason() -> None:
    encoder = Encoder()

    assert [encoder.close(), encoder.close(1002, "no"), encoder.close(1005)] == [
        b"\x88\x02\x03\xe8",
        b"\x88\x04\x03\xeano",
        b"\x88\x00",
    ]


def test_a_message_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    data = client_frame(0x81, b"a" * LIMIT) + client_frame(0x81, b"b" * (LIMIT + 1))

    assert decode(data) == [b"a" * LIMIT, Oversized(LIMIT + 1, b"b" * HEAD_BYTES)]


def test_a_long_message_is_sent_in_frames_of_at_most_16_mib() -> None:
    """The reference disconnects on a longer frame."""
    size = 16 * 1024 * 1024

    parts = Encoder().text(b"x" * (size + 1))

    assert [len(part) for part in parts] == [10, size, 2, 1]
    assert (parts[0][0], parts[2][0]) == (0x01, 0x80)


def test_the_stream_knows_whether_it_is_inside_a_message() -> None:
    decoder = Decoder(masked=True)
    frame = client_frame(0x01, b"x") + client_frame(0x80, b"y")

    states = []
    for byte in frame:
        decoder.feed(bytes((byte,)))
        states.append(decoder.is_inside_message)

    assert states == [True] * (len(frame) - 1) + [False]


def test_the_accept_key_is_the_one_of_the_rfc() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
