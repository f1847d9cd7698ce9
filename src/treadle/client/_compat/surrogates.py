"""A transport that replaces lone surrogates in the server's messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from treadle.jsonrpc.framing import Frame
from treadle.transport.base import DirectTransport, Transport

# A lone surrogate or a whole pair; an escaped backslash does not start an escape.
_ESCAPE: Final = re.compile(
    rb"\\\\"
    rb"|(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)

_BACKSLASH: Final = ord("\\")


class MendedTransport:
    """Forwards frames and replaces each lone surrogate with U+FFFD.

    JSON can express a lone surrogate, strict decoders reject the whole message because of it, and
    servers that truncate text at a number of bytes send it.
    """

    def __init__(self, transport: Transport) -> None:
        self.peer = transport.peer
        self._transport = transport

    async def receive(self) -> Sequence[Frame]:
        """Wait for the next messages."""
        return [_replace_in(frame) for frame in await self._transport.receive()]

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send messages in order."""
        await self._transport.send(frames)

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()


class DirectMendedTransport(MendedTransport):
    """`MendedTransport` over a direct transport."""

    def __init__(self, transport: DirectTransport) -> None:
        super().__init__(transport)
        self._direct = transport

    def send_now(self, frame: bytes) -> bool:
        """Send a message at once, if there is room for it."""
        return self._direct.send_now(frame)

    def pour_into(self, sink: Callable[[Sequence[Frame]], None]) -> None:
        """Pass messages to a function as they arrive."""
        self._direct.pour_into(lambda frames: sink([_replace_in(frame) for frame in frames]))


def replace_lone_surrogates(transport: Transport) -> Transport:
    """Wrap a transport."""
    if isinstance(transport, DirectTransport):
        return DirectMendedTransport(transport)
    return MendedTransport(transport)


def _replace_in(frame: Frame) -> Frame:
    # Few messages contain an escape, and the search for a single byte is cheap.
    if isinstance(frame, bytes) and _BACKSLASH in frame and b"\\u" in frame:
        return _ESCAPE.sub(_replace, frame)
    return frame


def _replace(match: re.Match[bytes]) -> bytes:
    is_valid = match[1] is not None or match[0] == b"\\\\"
    return match[0] if is_valid else b"\\ufffd"
