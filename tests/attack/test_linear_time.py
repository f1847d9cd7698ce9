"""Input from unknown peers, clients and models is processed in a bounded number of passes.

No test here measures time: each counts steps of work, or checks that the work stops at its budget.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

import pytest

from tests.harness.threads import Stage
from treadle.model.structured.effort import MAX_STEPS
from treadle.model.structured.validation import validate
from treadle.protocol.base import JsonValue
from treadle.server.files import service as files
from treadle.support.files.writing import make_folders
from treadle.support.logs import JsonFormatter, TextFormatter
from treadle.support.text.json_text import MAX_CONTAINERS, MAX_NESTING, is_nested_deeper

T = TypeVar("T")

# Each pass over a part of 64 KiB takes some ten calls.
MAX_LOOKS = 60
# Nested folders; paths this deep still leave room for those of the test.
DEPTH = 1500


def counted(work: Callable[[], T]) -> tuple[T, int]:
    """Run a function; return its result and how many interpreter functions it called."""
    calls = 0

    def count(_frame: FrameType, event: str, _function: object) -> None:
        nonlocal calls
        calls += event == "c_call"

    sys.setprofile(count)
    try:
        return work(), calls
    finally:
        sys.setprofile(None)


# -- nesting


@pytest.mark.parametrize(
    ("document", "is_deeper"),
    [
        (b"[" * MAX_CONTAINERS + b"]" * MAX_CONTAINERS, True),
        (b"[" * 31_000 + b"]" * 31_000, True),
        ((b"[" * 100 + b"]" * 100) * 1000, False),
        ((b"[" * MAX_NESTING + b"]" * MAX_NESTING) * 700, False),
    ],
)
def test_a_document_of_brackets_is_read_in_few_passes_however_deep_it_is(
    document: bytes, is_deeper: bool
) -> None:
    """Removing level after level took a second per megabyte, on the event loop."""
    result, calls = counted(lambda: is_nested_deeper(document))

    assert result == is_deeper
    assert calls < MAX_LOOKS


@pytest.mark.parametrize("before", [0, 1, 7, 8, 9, 32_767, 32_768, 40_000])
@pytest.mark.parametrize("depth", [MAX_NESTING, MAX_NESTING + 1])
def test_the_nesting_depth_is_exact_wherever_the_deepest_place_is(before: int, depth: int) -> None:
    document = b"[" + b"[]," * before + b"[" * (depth - 1) + b"]" * depth
    assert is_nested_deeper(document) == (depth > MAX_NESTING)


# -- answers against schemas


def bounded(work: Callable[[], T], limit: int) -> T:
    """Run a function that may call and resume functions at most `limit` times."""
    left = limit

    def count(_frame: FrameType, event: str, _function: object) -> None:
        nonlocal left
        left -= event in ("call", "c_call")
        if left < 0:
            raise AssertionError(f"more than {limit} calls")

    sys.setprofile(count)
    try:
        return work()
    finally:
        sys.setprofile(None)


def each(schema: JsonValue) -> JsonValue:
    """Return a schema that tries another one for each item and rejects only a zero at the end."""
    return {"items": {"anyOf": [schema, {"not": {"const": 0}}]}}


NAMES = {f"{'ab' * 20}{number}": None for number in range(1000)}
EXPENSIVE: dict[str, tuple[JsonValue, JsonValue]] = {
    "patterns": (NAMES, {"patternProperties": {f"(a|b){{{n}}}n": True for n in range(100, 400)}}),
    "refused patterns": (
        NAMES,
        {"patternProperties": {f"(a|b){{{n}}}n": True for n in range(2000, 2300)}},
    ),
    "empty groups": (["a"] * 1000, {"items": {"pattern": "(" + "()" * 3000 + "){1900}b"}}),
    "sets": ("a", {"pattern": "[" + "".join(map(chr, range(1000, 9000, 2))) + "]{1900}"}),
    "ranges": (
        "a" * 500_000,
        {"pattern": "[" + "".join(f"{chr(n)}-{chr(n + 1)}" for n in range(500, 9500, 3)) + "]"},
    ),
    "values": (["a"] * 5000, each({"enum": [f"a{number}" for number in range(5000)]})),
    "large values": (
        [["a"] * 500] * 500,
        each({"enum": [["a"] * 499 + [f"{number}"] for number in range(500)]}),
    ),
    "types": ([1] * 5000, each({"type": ["string"] * 5000})),
    "required": ([{"a": None}] * 5000, each({"required": ["a"] * 5000})),
    "references": ([1] * 5000, each({"$ref": "#" + "/items" * 5000})),
    "quotes": ([1] * 5000, each({"const": "a" * 100_000})),
    "repeated items": ([["a" * 1000] * 100], each({"allOf": [{"uniqueItems": True}] * 5000})),
}


@pytest.mark.parametrize("kind", EXPENSIVE)
def test_all_checks_of_an_answer_draw_from_one_budget(kind: str) -> None:
    """Each match of a pattern once had its own budget, and the other keywords had none."""
    value, schema = EXPENSIVE[kind]
    text = json.dumps([*value, 0] if isinstance(value, list) else value)

    assert bounded(lambda: validate(text, schema), 4 * MAX_STEPS) == []


def test_a_budget_is_enough_for_realistic_schemas() -> None:
    record = {"id": "ab-12", "mail": "someone@example.org", "state": "open", "tags": ["x", "y"]}
    fields: JsonValue = {
        "id": {"type": "string", "pattern": r"^[a-z]{2}-\d+$"},
        "mail": {"type": "string", "pattern": r"^[^@\s]+@[\w.-]+\.\w{2,}$"},
        "state": {"enum": ["new", "open", "closed"]},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    }
    schema: JsonValue = {
        "type": "array",
        "items": {"type": "object", "properties": fields, "required": [*fields]},
    }
    wrong = {**record, "id": "ab-12!"}

    result = validate(json.dumps([record] * 1000 + [wrong]), schema)

    assert result == [f"$[1000].id: does not match {fields['id']['pattern']!r}"]


@pytest.mark.parametrize(
    ("text", "schema", "problems"),
    [
        ("[" * 100_000 + "]" * 100_000, {}, ["$: not JSON: nested too deeply"]),
        ("{}", {"required": [["a"]]}, []),
        ("[true]", {"const": [1]}, ["$: expected [1]"]),
    ],
    ids=["deep", "list", "nested"],
)
def test_unusual_answers_and_schemas_are_judged(
    text: str, schema: JsonValue, problems: list[str]
) -> None:
    """A failure of the check itself once ended the turn as an internal error."""
    assert validate(text, schema) == problems


# -- nested folders


def deep_folder(root: Path) -> Path:
    return root.joinpath(*["q"] * DEPTH)


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Allow only few descriptors beyond the open ones: one for each level is too many."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = max(int(link.name) for link in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_folders_are_made_copied_and_removed_however_deep_they_are(stage: Stage) -> None:
    """One level of recursion per folder ended in an internal error."""
    client = await stage.client()
    top, other = stage.workspace / "top", stage.workspace / "other"
    params: JsonValue = {"path": str(deep_folder(top)), "recursive": True}

    assert await client.request("fs/createDirectory", params) == {}
    assert await client.request("fs/createDirectory", params) == {}
    paths = {"sourcePath": str(deep_folder(top)), "destinationPath": str(deep_folder(other))}
    assert await client.request("fs/copy", {**paths, "recursive": True}) == {}
    assert deep_folder(other).is_dir()
    for path in (top, other):
        with few_descriptors():
            assert await client.request("fs/remove", {"path": str(path), "recursive": True}) == {}

    assert list(stage.workspace.iterdir()) == []


def test_private_folders_are_made_however_deep_they_are(tmp_path: Path) -> None:
    folder = deep_folder(tmp_path / "top")
    try:
        assert len(make_folders(folder)) == DEPTH + 2
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        files.remove(tmp_path / "top", recursive=True, force=True)


def test_a_folder_that_is_moved_while_it_is_emptied_removes_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way up from the inner folder then leads to a folder that must not be removed."""
    (tmp_path / "top" / "inner" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "inner").mkdir(parents=True)
    original = os.rmdir

    def rmdir(path: str, *, dir_fd: int | None = None) -> None:
        original(path, dir_fd=dir_fd)
        if path == "deep":
            (tmp_path / "top" / "inner").rename(tmp_path / "elsewhere" / "moved")

    monkeypatch.setattr(os, "rmdir", rmdir)
    with pytest.raises(OSError, match="moved"):
        files.remove(tmp_path / "top", recursive=True, force=True)

    assert (tmp_path / "elsewhere" / "inner").is_dir()


# -- logged tracebacks


def long_chain() -> Exception:
    """Raise an error for each level of a deep recursion, each while the previous one is handled."""
    error: Exception = ValueError("first")
    for number in range(2000):
        following = KeyError(number)
        following.__context__ = error
        error = following
    return error


def deep_calls(depth: int) -> Exception:
    def call(left: int) -> None:
        if left:
            call(left - 1)
        raise ValueError("first")

    try:
        call(depth)
    except ValueError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
@pytest.mark.parametrize(
    "make",
    [
        long_chain,
        lambda: deep_calls(700),
        lambda: ExceptionGroup("x", [deep_calls(20) for _ in range(200)]),
        lambda: ValueError("first" * MAX_STEPS),
    ],
    ids=["chain", "calls", "group", "text"],
)
def test_a_long_traceback_is_shortened_before_it_is_formatted(
    formatter: logging.Formatter, make: Callable[[], Exception]
) -> None:
    """It is formatted on the event loop: a chain of a thousand errors took half a second."""
    error = make()
    info = (type(error), error, error.__traceback__)
    record = logging.makeLogRecord({"name": "treadle", "msg": "x", "exc_info": info})

    line = bounded(lambda: formatter.format(record), 20_000)

    assert len(line) < 20_000
    assert "first" in line
    assert type(error).__name__ in line


def test_an_ordinary_traceback_is_complete() -> None:
    error = deep_calls(3)
    error.__context__ = KeyError("before")
    record = logging.makeLogRecord({"exc_info": (type(error), error, error.__traceback__)})

    expected = "".join(traceback.format_exception(error)).rstrip()

    assert TextFormatter().format(record).endswith(expected)
