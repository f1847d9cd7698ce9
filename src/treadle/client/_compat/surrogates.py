"""A line whose text is mended where a server wrote half a character."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from treadle.jsonrpc.framing import Frame
from treadle.transport.base import DirectTransport, Transport

# Half of a surrogate pair, or a whole one; an escaped backslash is no beginning of an escape.
_ESCAPE: Final = re.compile(
    rb"\\\\"
    rb"|(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)

_BACKSLASH: Final = ord("\\")


class MendedTransport:
    """Passes frames on; half a character becomes the sign for one that is missing.

    JSON allows to write it, strict readers refuse the whole message for it, and servers that cut
    text at a number of bytes do send it.
    """

    def __init__(self, transport: Transport) -> None:
        self.peer = transport.peer
        self._transport = transport

    async def receive(self) -> Sequence[Frame]:
        """Wait for the next messages."""
        return [_mend(frame) for frame in await self._transport.receive()]

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send messages in order."""
        await self._transport.send(frames)

    async def close(self) -> None:
        """Hang up."""
        await self._transport.close()


class DirectMendedTransport(MendedTransport):
    """The same over a line that needs no waiting."""

    def __init__(self, transport: DirectTransport) -> None:
        super().__init__(transport)
        self._direct = transport

    def send_now(self, frame: bytes) -> bool:
        """Send a message at once, if there is room for it."""
        return self._direct.send_now(frame)

    def pour_into(self, sink: Callable[[Sequence[Frame]], None]) -> None:
        """Hand over messages as they arrive."""
        self._direct.pour_into(lambda frames: sink([_mend(frame) for frame in frames]))


def mended(transport: Transport) -> Transport:
    """A line whose text is mended."""
    if isinstance(transport, DirectTransport):
        return DirectMendedTransport(transport)
    return MendedTransport(transport)


def _mend(frame: Frame) -> Frame:
    # Few messages have an escape at all, and looking for one number costs next to nothing.
    if isinstance(frame, bytes) and _BACKSLASH in frame and b"\\u" in frame:
        return _ESCAPE.sub(_replace, frame)
    return frame


def _replace(match: re.Match[bytes]) -> bytes:
    is_fine = match[1] is not None or match[0] == b"\\\\"
    return match[0] if is_fine else b"\\ufffd"
