"""Logs to stderr, one line per event, as text or JSON.

A separate thread writes them, so that a full pipe never stops the server. Warnings, those of
libraries too, and ignored errors are among them: Python would write these to stderr at once.

`TREADLE_LOG` (or `RUST_LOG`, which clients of the reference set) sets the level, and levels by
module: `info`, `debug`, `warn,treadle.jsonrpc=debug`, `off`. `LOG_FORMAT=json` selects JSON lines.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Final, TypeAlias

from treadle.support.text.terminal import one_line, prose
from treadle.support.tracebacks import traceback_text

ErrorInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)

_LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
MAX_WAITING: Final = 1000
MAX_RECENT: Final = 1000
MAX_RECENT_CHARS: Final = 2048
FLUSH_SECONDS: Final = 0.3
STDERR: Final = 2

logger = logging.getLogger(__name__)


def configure(environ: Mapping[str, str] = os.environ) -> None:
    """Send all logs to stderr, as the environment configures them; of libraries only warnings."""
    default, by_module = parse_levels(environ.get("TREADLE_LOG") or environ.get("RUST_LOG") or "")
    is_json = environ.get("LOG_FORMAT", "").lower() == "json"
    handler = _StderrHandler()
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter())
    root = logging.getLogger("treadle")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(default)
    libraries = logging.getLogger()
    libraries.handlers[:] = [handler]
    libraries.setLevel(max(default, logging.WARNING))
    logging.captureWarnings(capture=True)
    sys.unraisablehook = _log_ignored
    for module, level in by_module.items():
        logging.getLogger(module).setLevel(level)


def recent_lines() -> list[str]:
    """Return the latest lines that this process has logged, the oldest first."""
    handlers = logging.getLogger("treadle").handlers
    # Copied at once: other threads log meanwhile.
    recent = [list(each.recent) for each in handlers if isinstance(each, _StderrHandler)]
    return recent[0] if recent else []


def _log_ignored(found: sys.UnraisableHookArgs) -> None:
    """Log an error that no caller receives, such as one in a destructor."""
    logger.error("error ignored", exc_info=found.exc_value)


def parse_levels(text: str) -> tuple[int, dict[str, int]]:
    """Parse a filter; directives for other packages and invalid ones are ignored."""
    default = logging.WARNING
    by_module: dict[str, int] = {}
    for directive in filter(None, (part.strip() for part in text.split(","))):
        target, _, name = directive.rpartition("=")
        level = _LEVELS.get(name.lower())
        if level is None:
            continue
        if not target:
            default = level
        elif target == "treadle" or target.startswith(("treadle.", "treadle::")):
            by_module[target.replace("::", ".")] = level
    return by_module.pop("treadle", default), by_module


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class _Formatter(logging.Formatter):
    def formatException(self, ei: ErrorInfo) -> str:  # noqa: N802 - of the base class
        """Return the traceback, of bounded length: it is formatted where the error was logged."""
        return "NoneType: None" if ei[1] is None else traceback_text(ei[1])


class TextFormatter(_Formatter):
    """`2026-01-31T12:00:00 WARNING treadle.jsonrpc: dropped a frame peer=stdio`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, except for a traceback; control characters are escaped."""
        line = super().format(record)
        fields = " ".join(f"{name}={value!r}" for name, value in _fields(record).items())
        return prose(f"{line} {fields}" if fields else line)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the base class
        """Return the message in one line, so that it cannot imitate another record."""
        return one_line(super().formatMessage(record))


class JsonFormatter(_Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return all attributes of the record, under their own names."""
        entry: dict[str, object] = {
            "timestamp": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname,
            "target": record.name,
            "message": record.getMessage(),
            "fields": _fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class _StderrHandler(logging.Handler):
    """Writes from a thread; a slow reader loses lines, and the log shows how many."""

    def __init__(self) -> None:
        super().__init__()
        self.recent: deque[str] = deque(maxlen=MAX_RECENT)
        self._waiting: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one line."""
        if self._waiting.qsize() >= MAX_WAITING:
            self._dropped += 1
            return
        line = self.format(record)
        self.recent.append(line[:MAX_RECENT_CHARS])
        if self._dropped:
            line, self._dropped = f"{line}\n... {self._dropped} lines were dropped", 0
        self._waiting.put(line)
        if self._thread is None:
            thread = threading.Thread(target=self._write, name="logs", daemon=True)
            # A log must not fail where no thread can be started: the next line tries again.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def flush(self) -> None:
        """Wait up to `FLUSH_SECONDS` for the queued lines: called when the process ends."""
        if self._thread is not None and self._thread.is_alive():
            written = threading.Event()
            self._waiting.put(written)
            written.wait(FLUSH_SECONDS)

    def _write(self) -> None:
        while True:
            line = self._waiting.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            try:
                # Not sys.stderr: its lock, held while the pipe is full, blocks the exit.
                _write_all(STDERR, f"{line}\n".encode("utf-8", "backslashreplace"))
            except OSError:
                return  # stderr has no reader, and there is no other place to report it


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
