"""The reference's schemas, reduced to the parts that are facts about types, and its file names."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from tests.conformance.shape import Schema, definitions_of, reduced
from treadle.protocol.base import JsonValue

BUNDLE = "codex_app_server_protocol.schemas.json"


class Export(TypedDict):
    """What a release exports: its definitions by name, and the names of its files."""

    definitions: dict[str, Schema]
    files: list[str]


def export(program: str, *, experimental: bool) -> Export:
    """Run a release and return what it exports."""
    schemas = _generated(program, "generate-json-schema", experimental=experimental)
    definitions = definitions_of(json.loads(schemas[BUNDLE]))
    files = set(schemas)
    if experimental:
        files |= _generated(program, "generate-ts", experimental=True).keys()
    return {"definitions": reduced(definitions), "files": sorted(files)}


def recording(program: str) -> JsonValue:
    """Return both exports as one document: the stable one by what differs in it."""
    full, stable = (export(program, experimental=each) for each in (True, False))
    known = full["definitions"]
    return {
        "experimental": full,
        "stable": {
            "absent": sorted(known.keys() - stable["definitions"].keys()),
            "changed": {
                name: definition
                for name, definition in stable["definitions"].items()
                if definition != known.get(name)
            },
            "files": stable["files"],
        },
    }


def recorded(document: JsonValue, *, experimental: bool) -> Export:
    """Return one export of a recording."""
    full: Export = document["experimental"]
    if experimental:
        return full
    stable = document["stable"]
    definitions = full["definitions"] | stable["changed"]
    kept = {name: each for name, each in definitions.items() if name not in stable["absent"]}
    return {"definitions": kept, "files": stable["files"]}


@cache
def _generated(program: str, command: str, *, experimental: bool) -> dict[str, str]:
    """Run `codex app-server COMMAND` and return the files it wrote: relative path to text."""
    with TemporaryDirectory() as folder:
        home, out = Path(folder, "home"), Path(folder, "out")
        home.mkdir()
        arguments = ["app-server", command, "--out", str(out)]
        subprocess.run(
            [program, *arguments, *(["--experimental"] if experimental else [])],
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
