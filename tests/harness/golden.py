"""Recordings of what releases of the reference do.

They are in `tests/golden/<release>/<test file>/<name>.json`. A test that requests the fixture
`golden` exists twice. `[treadle]` runs Treadle and compares it with the recording; `make test` runs
these. `[reference]` runs the release and has the marker `reference`: `make test-reference` compares
the release with its recording, and `make record` records it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.placeholders import traces_of_this_machine
from tests.harness.releases import NEWEST, program
from treadle.protocol.base import JsonValue

TREADLE, REFERENCE = "treadle", "reference"
SERVERS = (TREADLE, REFERENCE)
_TESTS = Path(__file__).parents[1]
_DIFF_LINES = 80


@dataclass(frozen=True)
class Golden:
    """The recordings of one test file, and which server the current test runs."""

    test_file: Path
    server: str
    is_recorded: bool
    """Record the reference instead of comparing it with its recording."""
    release: str = NEWEST

    @property
    def runs_reference(self) -> bool:
        """Whether the test runs the reference; otherwise it runs Treadle."""
        return self.server == REFERENCE

    @property
    def program(self) -> str:
        """The executable that the test runs."""
        return program(self.release if self.runs_reference else TREADLE)

    def of(self, release: str) -> Golden:
        """Return the same with another release."""
        return Golden(self.test_file, self.server, self.is_recorded, release)

    def path(self, name: str) -> Path:
        """Return the file of a recording."""
        area = self.test_file.relative_to(_TESTS).with_suffix("")
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        folder = _TESTS / "golden" / self.release / area.parent / area.name.removeprefix("test_")
        return folder / f"{slug}.json"

    def load(self, name: str) -> JsonValue:
        """Return a recording; fail if it does not exist."""
        path = self.path(name)
        if not path.exists():
            shown = path.relative_to(_TESTS.parent)
            pytest.fail(f"no recording {shown}; {self._advice('make it')}", pytrace=False)
        return json.loads(path.read_text("utf-8"))

    def save(self, name: str, value: JsonValue) -> None:
        """Record what the reference did."""
        text = _text(value)
        traces = traces_of_this_machine(text)
        assert not traces, f"the recording of {name!r} contains {traces}; add placeholders"
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def check(
        self,
        name: str,
        value: JsonValue,
        compare: Callable[[JsonValue, JsonValue], None] | None = None,
    ) -> None:
        """Compare what the server did with the recording; with `make record`, record it.

        `compare` receives the recording and what Treadle did; by default they must be equal. What
        the reference did must always equal its recording.
        """
        if self.runs_reference and self.is_recorded:
            self.save(name, value)
        elif compare is None or self.runs_reference:
            self.equal(name, self.load(name), json.loads(json.dumps(value)))
        else:
            compare(self.load(name), json.loads(json.dumps(value)))

    def equal(self, name: str, recorded: JsonValue, value: JsonValue) -> None:
        """Fail with a diff unless what the server did equals the recording."""
        if recorded == value:
            return
        shown = self.path(name).relative_to(_TESTS.parent)
        if self.runs_reference:
            head = f"stale recording {shown}; {self._advice('renew it')}"
        else:
            head = f"Treadle differs from the recording {shown}"
        names = (f"{self.release} (recorded)", f"{self.release} (installed)")
        if not self.runs_reference:
            names = (names[0], TREADLE)
        pytest.fail("\n".join([head, *_diff(recorded, value, *names)]), pytrace=False)

    def _advice(self, purpose: str) -> str:
        place = self.test_file.relative_to(_TESTS.parent)
        return f'to {purpose}: make record ARGS="{place}"'


def _text(value: JsonValue) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _diff(recorded: JsonValue, value: JsonValue, before: str, after: str) -> list[str]:
    pair = (_text(recorded).splitlines(), _text(value).splitlines())
    lines = list(difflib.unified_diff(*pair, before, after, lineterm="", n=4))
    rest = len(lines) - _DIFF_LINES
    return lines if rest <= 0 else [*lines[:_DIFF_LINES], f"... {rest} more lines"]
