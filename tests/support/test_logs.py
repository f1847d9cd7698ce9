"""Logs: levels, formats, and what they must never contain."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.harness.processes import TREADLE, environment
from treadle.support.logs import JsonFormatter, TextFormatter, configure, parse_levels

HELLO = (
    b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"},'
    b'"capabilities":{"experimentalApi":true}}}\n'
)
SECRET = b"correct-horse"
LINES = [
    HELLO,
    b'{"id":1,"method":"mock/experimentalMethod","params":{"value":"%s"}}\n' % SECRET,
    b'{"id":2,"method":"mock/experimentalMethod","params":{"value":{"a":"%s"}}}\n' % SECRET,
    b'{"id":3,"method":"%s"}\n' % SECRET,
    b'{"id":{"%s":1},"method":"m"}\n' % SECRET,
    b'{"method":"%s"}\n' % SECRET,
    b"not json %s\n" % SECRET,
    b'{"id":5,"error":{"code":1,"message":"%s"}}\n' % SECRET,
    b"\xff%s\n" % SECRET,
]


def stderr_of(home: Path, **extra: str) -> str:
    done = subprocess.run(
        [TREADLE, "app-server"],
        input=b"".join(LINES),
        env=environment(home, **extra),
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert SECRET in done.stdout
    return done.stderr.decode()


@pytest.mark.parametrize(
    ("text", "level", "modules"),
    [
        ("", logging.WARNING, {}),
        ("info", logging.INFO, {}),
        ("DEBUG", logging.DEBUG, {}),
        ("trace", logging.DEBUG, {}),
        ("off", logging.CRITICAL + 1, {}),
        ("error,treadle.jsonrpc=debug", logging.ERROR, {"treadle.jsonrpc": logging.DEBUG}),
        ("treadle=info, treadle::jsonrpc=warn", logging.INFO, {"treadle.jsonrpc": logging.WARNING}),
        ("codex_core=debug,hyper=trace", logging.WARNING, {}),
        ("nonsense,=,x=y=z,info=", logging.WARNING, {}),
    ],
)
def test_levels_are_read_from_a_filter(text: str, level: int, modules: dict[str, int]) -> None:
    assert parse_levels(text) == (level, modules)


@pytest.mark.parametrize(
    ("extra", "levels"),
    [
        ({}, {"WARNING"}),
        ({"TREADLE_LOG": "info"}, {"INFO", "WARNING"}),
        ({"RUST_LOG": "info"}, {"INFO", "WARNING"}),
        ({"TREADLE_LOG": "error", "RUST_LOG": "debug"}, set()),
        ({"TREADLE_LOG": "off"}, set()),
    ],
)
def test_the_environment_sets_the_level(
    home: Path, extra: dict[str, str], levels: set[str]
) -> None:
    lines = stderr_of(home, **extra).splitlines()
    assert {line.split()[1] for line in lines} == levels


def test_json_logs_are_one_object_a_line(home: Path) -> None:
    text = stderr_of(home, TREADLE_LOG="info", LOG_FORMAT="json")
    entries = [json.loads(line) for line in text.splitlines()]
    assert all(
        set(entry) == {"timestamp", "level", "target", "message", "fields"} for entry in entries
    )
    dropped = [entry for entry in entries if entry["message"] == "dropped a frame"]
    assert {entry["fields"]["peer"] for entry in dropped} == {"stdio"}
    assert {entry["target"] for entry in dropped} == {"treadle.connection.connection"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_payload_is_logged_above_debug(home: Path, form: str) -> None:
    text = stderr_of(home, TREADLE_LOG="info", LOG_FORMAT=form)
    assert "dropped a frame" in text
    assert SECRET.decode() not in text


def test_a_text_line_shows_the_fields_of_an_event() -> None:
    record = logging.makeLogRecord(
        {
            "name": "treadle.jsonrpc",
            "levelname": "INFO",
            "msg": "done",
            "thread_id": "a b",
            "count": 2,
        }
    )
    line = TextFormatter().format(record)
    assert line.endswith(" INFO treadle.jsonrpc: done thread_id='a b' count=2")


def test_a_text_line_neither_controls_a_terminal_nor_imitates_another_line() -> None:
    error = ValueError("no\x1b[2J")
    record = logging.makeLogRecord(
        {
            "name": "treadle",
            "levelname": "INFO",
            "msg": "a\x1b[2K\n2026-01-31T12:00:00 INFO treadle: fine",
            "exc_info": (type(error), error, error.__traceback__),
            "path": "b\x1b\u3164",
        }
    )
    first, *others = TextFormatter().format(record).split("\n")
    assert first.endswith("treadle: a\\x1b[2K\\n2026-01-31T12:00:00 INFO treadle: fine")
    assert others == ["ValueError: no\\x1b[2J path='b\\x1b\\u3164'"]


def test_a_json_line_holds_the_fields_of_an_event_and_its_exception() -> None:
    error = ValueError("no")
    info = (type(error), error, error.__traceback__)
    record = logging.makeLogRecord(
        {"name": "treadle", "levelname": "ERROR", "msg": "x", "exc_info": info, "path": Path("/a")}
    )
    entry = json.loads(JsonFormatter().format(record))
    assert entry["fields"] == {"path": "/a"}
    assert entry["exception"].endswith("ValueError: no")


@pytest.mark.parametrize(("level", "count"), [("", 3), ("debug", 3), ("off", 0)])
def test_what_python_writes_to_stderr_is_written_like_other_lines(level: str, count: int) -> None:
    """Python itself would write them at once: a full pipe would stop the server."""
    program = """
import logging, os, threading, warnings
from treadle.support import logs
writers = []
write = os.write
os.write = lambda fd, data: (writers.append(threading.current_thread().name), write(fd, data))[1]
logs.configure()
logging.getLogger("asyncio").error("of a library")
logging.getLogger("asyncio").info("a detail")
warnings.warn("a warning")
class Failing:
    def __del__(self): raise ValueError("ignored")
Failing()
for handler in logging.getLogger().handlers: handler.flush()
print(writers)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TREADLE_LOG": level},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(["logs"] * count)
    lines = ["ERROR asyncio: of a library", "UserWarning: a warning", "\nValueError: ignored"]
    assert [done.stderr.count(line) for line in lines] == [min(count, 1)] * 3
    assert "a detail" not in done.stderr


def test_a_line_that_gets_no_thread_is_written_with_the_next(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    logger = logging.getLogger("treadle")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(logger, "level", logger.level)
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    monkeypatch.setattr(logging, "captureWarnings", lambda **_: None)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    configure({})
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        logger.error("first")
    logger.error("second")
    logger.handlers[0].flush()
    logged_lines = capfd.readouterr().err.splitlines()
    assert [line.rpartition(" ")[2] for line in logged_lines] == ["first", "second"]
