"""The servers that tests compare: Treadle, and releases of the reference.

`make test-reference` installs the releases. They are looked up when a test runs one, so that a
clone without them can collect and run all other tests.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.processes import TREADLE

NEWEST, OLDER, OLDEST = "0.163.0", "0.118.0", "0.98.0"
RELEASES = (NEWEST, OLDER, OLDEST)
LATEST_TYPES = "0.169.0"
"""The release whose types ours follow; `NEWEST` is the one whose behaviour is compared."""
SERVERS = ("treadle", *RELEASES)
LACKS: dict[str, frozenset[str]] = {
    OLDEST: frozenset({"turn/steer", "command/exec/write", "fs/writeFile", "--listen"})
}
"""What a release lacks of what newer ones have."""

OFFLINE = {OLDEST: "features.remote_models = false"}
"""What a configuration needs so that no thread waits three seconds for a list of models."""


def having(what: str) -> pytest.MarkDecorator:
    """Parametrise a test's `scene` by the servers that have a feature."""
    names = [name for name in SERVERS if what not in LACKS.get(name, ())]
    return pytest.mark.parametrize("scene", names, indirect=True)


def program(name: str) -> str:
    """Return the executable of a server; skip the test if that release is not installed."""
    if name == "treadle":
        return TREADLE
    if not _Current.is_marked:
        raise AssertionError("a test that runs the reference has the marker `reference`")
    path = _newest() if name == NEWEST else Path(sys.prefix, "reference", name, "codex")
    if path is None or not path.exists():
        pytest.skip(f"release {name} of the reference is not installed (make setup-reference)")
    return str(path)


def _newest() -> Path | None:
    try:
        from codex_cli_bin import bundled_codex_path
    except ImportError:
        return None
    return Path(bundled_codex_path())


class _Current:
    """The test that runs."""

    is_marked = False


def mark(items: Sequence[pytest.Item]) -> None:
    """Set the marker `reference` on every test that runs a release of the reference.

    Such a test has a release among its parameters, plays the reference for the fixture `golden`, or
    requests the fixture `reference`.
    """
    for item in items:
        if _runs_reference(item):
            item.add_marker(pytest.mark.reference)


def _runs_reference(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec else ()
    fixtures: Sequence[str] = getattr(item, "fixturenames", ())
    return "reference" in fixtures or any(
        isinstance(value, str) and value in (*RELEASES, LATEST_TYPES, "reference")
        for value in values
    )


def begin(item: pytest.Item) -> None:
    """Allow the test that starts to run a release if it has the marker."""
    _Current.is_marked = item.get_closest_marker("reference") is not None
