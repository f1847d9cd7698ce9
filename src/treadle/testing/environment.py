"""What servers under test run in: a home and an environment of their own, and no keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# PYTHONPATH: the package may be found by it. The rest: programs and texts work as they do outside.
_KEPT: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "SYSTEMROOT")


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a server needs to run, and nothing of the machine's own configuration."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "HOME": str(home), "TREADLE_HOME": str(home), "TERM": "xterm", **(extra or {})}


def furnish(home: Path, config: str) -> Path:
    """Make a home with a configuration."""
    home.mkdir(parents=True, exist_ok=True)
    if config:
        (home / "config.toml").write_text(config, "utf-8")
    return home
