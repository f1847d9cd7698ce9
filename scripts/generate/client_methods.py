"""Renders the client's methods: one Python method for each method of the protocol."""

from __future__ import annotations

import ast
import inspect
import re
from inspect import get_annotations
from typing import Any, cast

import msgspec

from scripts.generate.table import SOURCE, Entry, definitions, entries, format_source
from treadle.protocol.base import NoParams

FOLDER = SOURCE / "client"
# The subject of a request comes first, whatever the order on the wire.
FIRST = ("thread_id", "turn_id", "process_id", "path")
HEAD = '''\
"""The protocol's methods as methods of the {kind} client.

Generated from the table in `treadle/protocol/client_requests.py` by `make generate`.
"""

from __future__ import annotations

from typing import TypeVar

from treadle.protocol import client_requests, legacy
from treadle.protocol.method import Request
{imports}

P = TypeVar("P")
R = TypeVar("R")


class {name}:
    """One method for each request that the client does not wrap in a more convenient form."""

    {prefix}def request(
        self, method: Request[P, R], params: P, *, timeout: float | None = None
    ) -> R:
        """Send a request and return its result."""
        raise NotImplementedError
{methods}
'''


def render(*, is_async: bool) -> str:
    """Return the source of the base class of the asyncio client or of the blocking client."""
    skipped = handwritten()
    generated = [entry for entry in entries() if entry.request.call not in {None, *skipped}]
    methods = "\n".join(_method(entry, is_async=is_async) for entry in generated)
    modules = definitions()
    imports: dict[str, list[str]] = {}
    for name in sorted(set(re.findall(r"[A-Za-z_]\w*", methods)) & modules.keys()):
        imports.setdefault(modules[name], []).append(name)
    text = HEAD.format(
        kind="asyncio" if is_async else "blocking",
        name="AsyncMethods" if is_async else "Methods",
        prefix="async " if is_async else "",
        imports="\n".join(
            f"from {module} import {', '.join(names)}" for module, names in imports.items()
        ),
        methods=methods,
    )
    return format_source(text, "src/treadle/client/_methods/generated.py")


def handwritten() -> set[str]:
    """Return the names of the methods that the client's own classes define."""
    names = set()
    for source in ("async_client.py", "accounts.py", "_methods/files.py"):
        tree = ast.parse((FOLDER / source).read_text("utf-8"))
        names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    return names


def _method(entry: Entry, *, is_async: bool) -> str:
    request, kind = entry.request, entry.request.params
    signature, arguments = ["self"], []
    if kind is NoParams:
        params = "NoParams()"
    elif not isinstance(kind, type):  # a union: the caller chooses the variant
        signature.append(f"params: {entry.params}")
        params = "params"
    else:
        fields = msgspec.structs.fields(kind)
        required = sorted((f for f in fields if f.required and f.type is not bool), key=_rank)
        named = [field for field in fields if not field.required or field.type is bool]
        for field in required:
            annotation = _annotation(kind, field.name)
            signature.append(f"{field.name}: {annotation}")
            arguments.append(f"{field.name}={_value(field, annotation)}")
        signature += ["*"] if named else []
        for field in named:
            annotation = _annotation(kind, field.name)
            signature.append(_keyword(field, annotation))
            arguments.append(f"{field.name}={_value(field, annotation)}")
        params = f"{entry.params}({', '.join(arguments)})"
    table = entry.module.rpartition(".")[2]
    define, send = ("async def", "await self.request") if is_async else ("def", "self.request")
    return f'''
    {define} {request.call}({", ".join(signature)}) -> {entry.result}:
        """{_docstring(entry)}"""
        return {send}({table}.{entry.constant}, {params})'''


def _rank(field: msgspec.structs.FieldInfo) -> int:
    return FIRST.index(field.name) if field.name in FIRST else len(FIRST)


def _annotation(kind: type, name: str) -> str:
    for owner in kind.__mro__:
        annotations = get_annotations(owner)
        if name in annotations:
            return re.sub(r"^AbsolutePathBuf", "Path | AbsolutePathBuf", str(annotations[name]))
    raise LookupError(name)


def _keyword(field: msgspec.structs.FieldInfo, annotation: str) -> str:
    if field.required:
        return f"{field.name}: {annotation}"
    if field.default is msgspec.NODEFAULT:
        return f"{field.name}: {annotation} | None = None"
    default = "UNSET" if field.default is msgspec.UNSET else repr(field.default)
    return f"{field.name}: {annotation} = {default}"


def _value(field: msgspec.structs.FieldInfo, annotation: str) -> str:
    name = field.name
    if not field.required and field.default is msgspec.NODEFAULT:
        return f"{name} or {cast('Any', field.default_factory)()!r}"
    if annotation.startswith("Path |"):
        return (
            f"None if {name} is None else str({name})" if "None" in annotation else f"str({name})"
        )
    return name


def _docstring(entry: Entry) -> str:
    kind = entry.request.params
    text = inspect.getdoc(kind) if isinstance(kind, type) and kind is not NoParams else None
    first = (text or "Send the request and return its result.").split("\n\n")[0]
    return f"{' '.join(first.split())}\n\n        Sends `{entry.request.method}`.\n        "
