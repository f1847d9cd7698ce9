"""The home and the environment of servers under test, without keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# PYTHONPATH may be needed to import the package, coverage.py measures subprocesses by its variable;
# the rest keeps programs and encodings working.
_INHERITED: Final = (
    *("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "SYSTEMROOT"),
    "COVERAGE_PROCESS_CONFIG",
)


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a server needs, without the machine's own configuration."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        **inherited,
        "HOME": str(home),
        "TREADLE_HOME": str(home),
        "TERM": "xterm",
        **(extra or {}),
    }


def furnish(home: Path, config: str) -> Path:
    """Create a home with a configuration."""
    home.mkdir(parents=True, exist_ok=True)
    if config:
        (home / "config.toml").write_text(config, "utf-8")
    return home
