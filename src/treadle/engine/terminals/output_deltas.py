"""What clients see of a command's output while it runs: all of it, until it is a flood.

The first megabyte is published as it comes, then a steady trickle, and some megabytes in all. Where
something is left out, a note in its place says how much, and where the whole output is.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final, Literal

from treadle.engine.tools.output import MAX_KEPT_BYTES, from_first_character

Stream = Literal["stdout", "stderr"]

BURST_BYTES: Final = MAX_KEPT_BYTES
"""How much is published at once. It is not more than is kept, so that a note can name the file."""
BYTES_PER_SECOND: Final = 256 * 1024
TOTAL_BYTES: Final = 8 * 1024 * 1024
# After a gap, less than this is not worth a note.
_RESUME_BYTES: Final = 64 * 1024


class OutputBudget:
    """How much of an output may be published: a token bucket with a bottom."""

    def __init__(self) -> None:
        self._tokens = float(BURST_BYTES)
        self._left = TOTAL_BYTES
        self._at: float | None = None

    def take(self, wanted: int, now: float, *, least: int = 1) -> int:
        """Take up to so many bytes at a time in seconds; nothing if less than `least` is there."""
        if self._at is not None:
            earned = (now - self._at) * BYTES_PER_SECOND
            self._tokens = min(BURST_BYTES, self._tokens + earned)
        self._at = now
        granted = min(int(self._tokens), self._left)
        if granted < min(least, wanted):
            return 0
        granted = min(wanted, granted)
        self._tokens -= granted
        self._left -= granted
        return granted


class OutputDeltas:
    """Turns the bytes of a command into the text of deltas, within a budget."""

    def __init__(self, where: Callable[[], str | None]) -> None:
        # Gives the file with the whole output, if there is one.
        self._where = where
        self._budget = OutputBudget()
        self._omitted = 0
        self._decoders = {stream: _decoder() for stream in ("stdout", "stderr")}

    def add(self, stream: Stream, data: bytes, now: float) -> str:
        """Take what the command printed; returns what to publish of it."""
        least = _RESUME_BYTES if self._omitted else 1
        granted = self._budget.take(len(data), now, least=least)
        if not granted:
            self._omitted += len(data)
            return ""
        note = self._note()
        if note:
            data = from_first_character(data)
        text = self._decoders[stream].decode(data[:granted])
        if granted < len(data):
            self._omitted = len(data) - granted
            for decoder in self._decoders.values():
                # A character that the gap cuts in two is left out as a whole.
                decoder.reset()
        return note + text

    def finish(self) -> str:
        """Return what is left to publish at the end: half a character, or a last note."""
        rest = "".join(decoder.decode(b"", final=True) for decoder in self._decoders.values())
        return rest + self._note()

    def _note(self) -> str:
        count, self._omitted = self._omitted, 0
        return f"\n[... {omission(count, self._where())}]\n" if count else ""


def omission(count: int, where: str | None) -> str:
    """Say how much of an output was left out, and where all of it is."""
    place = f"; full output in {where}" if where else ""
    return f"{count:,} bytes omitted{place}"


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
