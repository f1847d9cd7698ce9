"""Finds the reference's own binary and generates its schemas."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conformance.shape import Schema
from tests.harness.releases import NEWEST, program


@cache
def generated(command: str, *, experimental: bool) -> dict[str, str]:
    """Run `codex app-server COMMAND` and return the files it wrote: relative path to text."""
    with TemporaryDirectory() as folder:
        home, out = Path(folder, "home"), Path(folder, "out")
        home.mkdir()
        arguments = ["app-server", command, "--out", str(out)]
        subprocess.run(
            [program(NEWEST), *arguments, *(["--experimental"] if experimental else [])],
            env=os.environ | {"CODEX_HOME": str(home)},
            check=True,
            capture_output=True,
            timeout=50,
        )
        return {
            path.relative_to(out).as_posix(): path.read_text(encoding="utf-8")
            for path in out.rglob("*")
            if path.is_file()
        }


def bundle(*, experimental: bool) -> Schema:
    """Return the bundle of all JSON Schemas."""
    files = generated("generate-json-schema", experimental=experimental)
    return json.loads(files["codex_app_server_protocol.schemas.json"])
