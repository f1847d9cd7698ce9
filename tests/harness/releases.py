"""The servers that the client is held against: ours, and releases of the reference.

The newest of those comes with the development dependencies; set-up fetches the others.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from codex_cli_bin import bundled_codex_path

from tests.harness.processes import TREADLE

NEWEST, OLDER, OLDEST = "0.163.0", "0.118.0", "0.98.0"
PROGRAMS = {
    "treadle": TREADLE,
    NEWEST: str(bundled_codex_path()),
    OLDER: str(Path(sys.prefix, "reference", OLDER, "codex")),
    OLDEST: str(Path(sys.prefix, "reference", OLDEST, "codex")),
}
LACKS: dict[str, frozenset[str]] = {
    OLDEST: frozenset({"turn/steer", "command/exec/write", "fs/writeFile", "--listen"})
}
"""What a release does not have of what newer ones do."""

OFFLINE = {OLDEST: "features.remote_models = false"}
"""What a configuration needs so that no thread waits three seconds for a list of models."""


def having(what: str) -> pytest.MarkDecorator:
    """Have a test's `scene` be of those servers only that have what it is about."""
    names = [name for name in PROGRAMS if what not in LACKS.get(name, ())]
    return pytest.mark.parametrize("scene", fetched(*names), indirect=True)


def fetched(*names: str) -> list[object]:
    """Parameters of a test: these servers, and a reason to skip those that are not here."""
    return [
        pytest.param(
            name,
            id=name,
            marks=pytest.mark.skipif(
                not Path(PROGRAMS[name]).exists(),
                reason=f"set-up could not fetch release {name} with npm",
            ),
        )
        for name in names
    ]
