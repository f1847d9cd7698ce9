"""Writes the signatures of the client's methods for type checkers: `methods.pyi`.

Run `python -m tests.client.method_stubs` after a change to the tables of the protocol.
"""

from __future__ import annotations

import ast
import re
import sys
from inspect import Parameter, get_annotations, getmro
from pathlib import Path
from typing import Any, cast

import treadle.protocol
from treadle.client._methods import methods
from treadle.client._methods.methods import parameters, request_named
from treadle.client._methods.names import NAMES, OWN
from treadle.protocol.method import Request

STUB = Path(methods.__file__).with_suffix(".pyi")
HEAD = """\
# The signatures of `methods.py`; written by `python -m tests.client.method_stubs`.
# fmt: off
# ruff: noqa: A002, E501, I001 - one method a line and the protocol's names, as in the tables
"""


def _definitions() -> dict[str, str]:
    """Which module of the protocol defines which name."""
    found: dict[str, str] = {}
    for path in sorted(Path(treadle.protocol.__path__[0]).glob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            for name in _names(node):
                found.setdefault(name, f"treadle.protocol.{path.stem}")
    return found | {"UnsetType": "msgspec"}


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


DEFINED = _definitions()


def _annotation(request: Request[Any, Any], name: str) -> str:
    if name == "params":
        return _entry(request, 1)
    for kind in getmro(cast("type", request.params)):
        words = get_annotations(kind)
        if name in words:
            # A path may be given as one.
            return re.sub(r"^AbsolutePathBuf", "Path | AbsolutePathBuf", str(words[name]))
    raise LookupError(name)


def _entry(request: Request[Any, Any], position: int) -> str:
    """What the table says in its own words: the name of the params or of the result."""
    for path in ("client_requests", "legacy"):
        module = sys.modules[f"treadle.protocol.{path}"]
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Request"), args=[ast.Constant(value=value), *_]):
                    if value == request.method:
                        return ast.unparse(node.args[position]).rpartition(".")[2]
                case _:
                    pass
    raise LookupError(request.method)


def _line(name: str, request: Request[Any, Any], prefix: str) -> str:
    taken = parameters(request)
    positional = [each for each in taken if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    named = [each for each in taken if each.kind is Parameter.KEYWORD_ONLY]
    parts = ["self", *(f"{each.name}: {_annotation(request, each.name)}" for each in positional)]
    if named:
        parts.append("*")
        parts += [f"{each.name}: {_annotation(request, each.name)} = ..." for each in named]
    return f"    {prefix}def {name}({', '.join(parts)}) -> {_entry(request, 2)}: ..."


def render() -> str:
    """The whole stub."""
    made = {NAMES[m]: request_named(m) for m in NAMES if m not in OWN}
    asynchronous = [_line(name, request, "async ") for name, request in made.items()]
    blocking = [_line(name, request, "") for name, request in made.items()]
    used = set(re.findall(r"[A-Za-z_]\w*", "\n".join(asynchronous))) & DEFINED.keys()
    imports: dict[str, list[str]] = {}
    for name in sorted(used):
        imports.setdefault(DEFINED[name], []).append(name)
    lines = [f"from {module} import {', '.join(imports[module])}" for module in sorted(imports)]
    head = [
        "from inspect import Parameter",
        "from pathlib import Path",
        "from typing import Any",
        "",
        *lines,
        "from treadle.protocol.method import Request",
        "",
        "def request_named(method: str) -> Request[Any, Any]: ...",
        "def parameters(request: Request[Any, Any]) -> list[Parameter]: ...",
        "",
    ]
    body = ["class AsyncMethods:", *asynchronous, "", "class Methods:", *blocking, ""]
    return HEAD + "\n".join([*head, *body])


if __name__ == "__main__":
    STUB.write_text(render(), "utf-8")
