"""Limits how much output of a running command is published.

The first megabyte is published as it arrives, then a limited rate, up to a total of some megabytes.
A note replaces omitted output, with its size and the file that contains all output.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final, Literal

from treadle.engine.tools.output import MAX_KEPT_BYTES, from_first_character

Stream = Literal["stdout", "stderr"]

BURST_BYTES: Final = MAX_KEPT_BYTES
"""Burst size. Not larger than the output kept in memory, so that a note can name the file."""
BYTES_PER_SECOND: Final = 256 * 1024
TOTAL_BYTES: Final = 8 * 1024 * 1024
# After a gap, publish again only when at least this much is allowed.
_RESUME_BYTES: Final = 64 * 1024


class OutputBudget:
    """How much output may be published: a token bucket with a total limit."""

    def __init__(self) -> None:
        self._tokens = float(BURST_BYTES)
        self._left = TOTAL_BYTES
        self._at: float | None = None

    def take(self, wanted: int, now: float, *, least: int = 1) -> int:
        """Take up to `wanted` bytes at time `now`; 0 if less than `least` is available."""
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
        # Returns the file with the whole output, if there is one.
        self._where = where
        self._budget = OutputBudget()
        self._omitted = 0
        self._decoders = {stream: _decoder() for stream in ("stdout", "stderr")}

    def add(self, stream: Stream, data: bytes, now: float) -> str:
        """Add output of the command; return the text to publish."""
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
                # Drop a character that the gap splits.
                decoder.reset()
        return note + text

    def finish(self) -> str:
        """Return the last text to publish: an incomplete character, or a last note."""
        rest = "".join(decoder.decode(b"", final=True) for decoder in self._decoders.values())
        return rest + self._note()

    def _note(self) -> str:
        count, self._omitted = self._omitted, 0
        return f"\n[... {omission(count, self._where())}]\n" if count else ""


def omission(count: int, where: str | None) -> str:
    """Describe how much output was omitted, and which file contains all of it."""
    place = f"; full output in {where}" if where else ""
    return f"{count:,} bytes omitted{place}"


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
