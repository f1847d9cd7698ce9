"""A line whose text is mended where a server wrote half a character."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from treadle.rpc.framing import Frame
from treadle.transport.base import Transport

# Half of a surrogate pair, or a whole one; an escaped backslash is no beginning of an escape.
_ESCAPE: Final = re.compile(
    rb"\\\\"
    rb"|(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


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


def _mend(frame: Frame) -> Frame:
    # Almost no message has an escape of this kind, and looking for two bytes costs nothing.
    if isinstance(frame, bytes) and b"\\u" in frame:
        return _ESCAPE.sub(_replace, frame)
    return frame


def _replace(match: re.Match[bytes]) -> bytes:
    is_fine = match[1] is not None or match[0] == b"\\\\"
    return match[0] if is_fine else b"\\ufffd"
