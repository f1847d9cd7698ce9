"""Reads the protocol's table of methods, with the names that its source uses."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treadle.protocol import client_requests, legacy
from treadle.protocol.method import Request

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/treadle"


@dataclass(frozen=True)
class Entry:
    """One line of the table."""

    constant: str
    module: str
    request: Request[Any, Any]
    params: str
    """The name of the type of its params, as the table writes it."""
    result: str


def entries() -> list[Entry]:
    """Return the methods of the table in its order, those of older releases last."""
    return [*_read(client_requests), *_read(legacy)]


def _read(module: Any) -> Iterator[Entry]:  # noqa: ANN401 - a module
    for node in ast.parse(Path(module.__file__).read_text("utf-8")).body:
        match node:
            case (
                ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Name(id="Request"), args=[_, params, result]),
                )
                | ast.AnnAssign(
                    target=ast.Name(id=name),
                    value=ast.Call(func=ast.Name(id="Request"), args=[_, params, result]),
                )
            ):
                types = [ast.unparse(each).rpartition(".")[2] for each in (params, result)]
                yield Entry(name, module.__name__, getattr(module, name), *types)
            case _:
                pass


def definitions() -> dict[str, str]:
    """Return the module of the protocol that defines each name."""
    modules: dict[str, str] = {"UnsetType": "msgspec", "UNSET": "msgspec", "Path": "pathlib"}
    for path in sorted((SOURCE / "protocol").glob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            for name in _defined_names(node):
                modules.setdefault(name, f"treadle.protocol.{path.stem}")
    return modules


def _defined_names(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def format_source(text: str, path: str) -> str:
    """Format Python source as `make format` does."""
    ruff = [str(Path(sys.executable).parent / "ruff")]
    for step in (["check", "--fix", "--exit-zero", "--quiet"], ["format", "--quiet"]):
        command = [*ruff, *step, "--stdin-filename", path, "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text
