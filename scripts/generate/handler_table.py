"""Renders the table of handlers: which file of the server handles which method."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.generate.table import SOURCE, entries, format_source
from treadle.server.handlers import refused

FOLDER = SOURCE / "server/handlers"
HEAD = '''\
"""The file that handles each method.

Generated from the decorators of the handlers by `make generate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RESOURCES: Final[Mapping[str, tuple[str, ...]]] = {
'''


def render() -> str:
    """Return the source of the table."""
    lines = [f"    {file!r}: {methods!r},\n" for file, methods in handled().items()]
    return format_source(HEAD + "".join(lines) + "}\n", "src/treadle/server/handlers/_table.py")


def handled() -> dict[str, tuple[str, ...]]:
    """Return the methods that each file of `server/handlers` handles."""
    methods = {entry.constant: entry.request.method for entry in entries()}
    table = {}
    for path in sorted(FOLDER.glob("[a-z]*.py")):
        if path.stem == refused.__name__.rpartition(".")[2]:
            table[path.stem] = tuple(sorted(refused.REASONS))
            continue
        names = sorted(methods[constant] for constant in _decorated(path))
        if names:
            table[path.stem] = tuple(names)
    return table


def _decorated(path: Path) -> list[str]:
    constants = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="router"), attr="request")):
                constants.append(ast.unparse(node.args[0]).rpartition(".")[2])
            case _:
                pass
    return constants
