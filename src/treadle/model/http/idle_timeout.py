"""The idle timeout of a stream: keep-alives extend it, up to a second limit."""

from __future__ import annotations

from typing import Final

from treadle.model.base import ModelError
from treadle.model.errors import disconnected

# Part of a long line: fewer bytes without a line end do not count as activity.
MIN_BYTES: Final = 1024
MAX_IDLE_BYTES: Final = 64 * 1024 * 1024
"""The maximum bytes without a part of the response; 30 minutes of keep-alives have far fewer."""


class StreamTimeout:
    """Measures the wait for a line, and the wait for a part of the response.

    Only the time spent reading counts: a slow consumer does not make the provider idle. All times
    are those of one monotonic clock, in seconds.
    """

    def __init__(self, idle_s: float, keep_alive_s: float) -> None:
        self.idle_s = idle_s
        self.keep_alive_s = max(idle_s, keep_alive_s)
        self._without_line_s = 0.0
        self._without_progress_s = 0.0
        self._bytes = 0
        self._bytes_without_progress = 0
        self._waiting_since: float | None = None

    def begin_wait(self, now: float) -> None:
        """Record that the reader starts to wait."""
        self._waiting_since = now

    def end_wait(self, now: float, chunk: bytes) -> None:
        """Record that the wait is over, and what arrived."""
        waited = 0.0 if self._waiting_since is None else now - self._waiting_since
        self._waiting_since = None
        self._without_line_s += waited
        self._without_progress_s += waited
        self._bytes += len(chunk)
        self._bytes_without_progress += len(chunk)
        if self._bytes >= MIN_BYTES or b"\n" in chunk or b"\r" in chunk:
            self._bytes = 0
            self._without_line_s = 0.0

    def note_progress(self) -> None:
        """Record that a part of the response has arrived."""
        self._without_line_s = self._without_progress_s = 0.0
        self._bytes_without_progress = 0

    def require_progress(self) -> None:
        """Check that the provider does not send keep-alives as fast as it can.

        The waits between them are too short to add up to a limit in time.

        Raises:
            ModelError: too much arrived since the last part of the response.
        """
        if self._bytes_without_progress > MAX_IDLE_BYTES:
            why = f"{MAX_IDLE_BYTES} bytes without a part of the response"
            raise disconnected(why, is_retryable=False)

    def ends_at(self, now: float) -> float:
        """Return the deadline of the stream, if nothing more arrives."""
        waited = 0.0 if self._waiting_since is None else now - self._waiting_since
        left = min(self.idle_s - self._without_line_s, self.keep_alive_s - self._without_progress_s)
        return now + left - waited

    def error(self, now: float) -> ModelError:
        """Return the error for the limit that is exceeded.

        A provider that only sends keep-alives is not retried: together the attempts would block
        the turn for several times the limit.
        """
        waited = 0.0 if self._waiting_since is None else now - self._waiting_since
        if self._without_line_s + waited >= self.idle_s:
            return disconnected(f"no data for {self.idle_s:g} s")
        why = f"only keep-alives for {self.keep_alive_s:g} s (stream_keep_alive_timeout_ms)"
        return disconnected(why, is_retryable=False)
