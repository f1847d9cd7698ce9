"""What is imported before `initialize` is answered, and that the rest continues from there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import TREADLE, environment
from treadle.protocol.base import JsonValue

HELLO: JsonValue = {
    "id": 0,
    "method": "initialize",
    "params": {
        "clientInfo": {"name": "x", "version": "1"},
        "capabilities": {"experimentalApi": True},
    },
}
ECHO: JsonValue = {"id": 1, "method": "mock/experimentalMethod", "params": {"value": "v"}}

# Prints, after the first answer is sent, what the interpreter has imported by then.
PROBE = """
import sys
from treadle.server.fast_handshake import answer_first
early = answer_first(["app-server"])
assert early is not None and early.answered
print(*sorted(sys.modules), file=sys.stderr)
"""
TOO_EARLY = """
aiohttp argparse ast asyncio base64 concurrent contextlib dataclasses datetime
decimal email hashlib http importlib.metadata inspect ipaddress jwt logging msgspec
multiprocessing pathlib pickle queue random secrets selectors shutil socket ssl string subprocess
tempfile threading tokenize tomllib traceback typing typing_extensions unittest urllib uuid
xml zipfile
""".split()


def run(
    arguments: list[str], home: Path, *documents: JsonValue
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        input="".join(f"{json.dumps(document)}\n" for document in documents),
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )


def test_hardly_anything_is_imported_when_initialize_is_answered(home: Path) -> None:
    # -S: without what the interpreter's own start-up files import.
    source = str(Path(__file__).parents[2] / "src")
    probe = f"import sys; sys.path.insert(0, {source!r}){PROBE}"
    done = run([sys.executable, "-S", "-c", probe], home, HELLO)
    assert json.loads(done.stdout)["id"] == 0
    loaded = set(done.stderr.split())
    assert {name for name in loaded if name.split(".")[0] == "treadle"} == {
        "treadle",
        "treadle.server",
        "treadle.server.fast_handshake",
        "treadle.server.handshake",
        "treadle.support",
        "treadle.support.home",
    }
    assert loaded.isdisjoint(TOO_EARLY)


def test_the_command_itself_imports_no_more(home: Path) -> None:
    """Lists the modules that were imported before the answer was written, in order."""
    done = run([sys.executable, "-X", "importtime", TREADLE, "app-server"], home, HELLO, ECHO)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    early = imported[: imported.index("treadle.__main__")]
    assert not {"treadle.server.server", "treadle.protocol.base", "msgspec", "asyncio"} & {*early}
    after = imported[imported.index("treadle.server.fast_handshake") + 1 :]
    assert "asyncio" in after


@pytest.mark.parametrize(
    "change",
    [
        {"title": "T"},
        {"title": None},
        {"name": "ünïcode"},
        {"name": "x" * 10_000},
        {"version": ""},
        {"unknown": [[1, {"a": None}]]},
    ],
)
def test_the_fast_answer_and_the_ordinary_one_are_the_same(home: Path, change: JsonValue) -> None:
    """A leading empty line makes the ordinary server answer."""
    hello = json.loads(json.dumps(HELLO))
    hello["params"]["clientInfo"] |= change
    line = json.dumps(hello, ensure_ascii=False) + "\n" + json.dumps(ECHO) + "\n"
    answers = [
        [json.loads(answer) for answer in _answers(home, start + line)] for start in ("", "\n")
    ]
    assert answers[0] == answers[1]
    assert answers[0][1] == {"id": 1, "result": {"echoed": "v"}}


@pytest.mark.parametrize(
    "broken",
    [
        ("x", "\\ud800"),
        ("x", "\\udc00"),
        ('"0"', "NaN"),
        ('"0"', "[" * 20_000 + "]" * 20_000),
        ('"0"', "[" * 900 + "]" * 900),
        ('"0"', "1" * 3000),
        ('{"id"', '\ufeff{"id"'),
    ],
)
def test_a_first_line_that_parsers_read_differently_does_no_harm(
    home: Path, broken: tuple[str, str]
) -> None:
    hello = {**HELLO, "unknown": "0"}
    line = json.dumps(hello).replace(*broken)
    answers = _answers(home, f"{line}\n{json.dumps(HELLO)}\n{json.dumps(ECHO)}\n")
    assert json.loads(answers[-1]) == {"id": 1, "result": {"echoed": "v"}}


def _answers(home: Path, text: str) -> list[str]:
    done = subprocess.run(
        [TREADLE, "app-server"],
        input=text.encode(),
        env=environment(home),
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert b"Traceback" not in done.stderr
    return done.stdout.decode().splitlines()
