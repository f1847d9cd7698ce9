"""Search for an app-server program."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from treadle.client.errors import ServerUnavailable
from treadle.support.files.programs import find_on_path

VARIABLE: Final = "TREADLE_APP_SERVER"
"""Environment variable that names the default server program."""


def find_command(
    name: str | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    workspace: str | None = None,
) -> list[str]:
    """Return the command that starts a server: `treadle`, `codex`, or the program at a path.

    The name defaults to `TREADLE_APP_SERVER`, else to this package's server. A program in the
    workspace is used only if there is no other program of that name.

    Raises:
        ServerUnavailable: there is no such program.
    """
    name = name or environ.get(VARIABLE) or "treadle"
    program = _find(name, environ.get("PATH"), workspace)
    if program is not None:
        return [program, "app-server"]
    if name == "treadle":
        # Without -P, Python would run a module of that name in the server's working folder.
        return [sys.executable, "-P", "-m", "treadle", "app-server"]
    raise ServerUnavailable(f"there is no program {name!r} on PATH")


def _find(name: str, path: str | None, workspace: str | None) -> str | None:
    if os.sep in name:
        return name
    beside = Path(sys.executable).with_name(name)
    if name == "treadle" and os.access(beside, os.X_OK):
        return str(beside)
    program = find_on_path(name, path, workspace=workspace)
    return program or (_bundled_codex() if name == "codex" else None)


def _bundled_codex() -> str | None:
    """Return the binary that the official SDK's package contains."""
    if find_spec("codex_cli_bin") is None:
        return None
    from codex_cli_bin import bundled_codex_path

    return str(bundled_codex_path())
