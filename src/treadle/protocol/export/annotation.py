"""Reads type annotations as text, because only the text still contains the names of aliases."""

from __future__ import annotations

import ast
from functools import cache
from typing import Final

from treadle.protocol.export.model import (
    Anything,
    Integer,
    ListOf,
    MapOf,
    Named,
    Null,
    Scalar,
    StringEnum,
    Type,
    Union,
)

_BUILTIN: Final[dict[str, Type]] = {
    "str": Scalar("string"),
    "bool": Scalar("boolean"),
    "float": Scalar("number"),
    "JsonValue": Anything(),
    "Int32": Integer("int32"),
    "Int64": Integer("int64"),
    "UInt8": Integer("uint8"),
    "UInt16": Integer("uint16"),
    "UInt32": Integer("uint32"),
    "UInt64": Integer("uint64"),
}

BUILTIN_NAMES: Final = frozenset(_BUILTIN)


class UnreadableAnnotation(Exception):
    """An annotation uses a form that this reader does not support."""

    def __init__(self, node: ast.AST) -> None:
        super().__init__(f"no schema for the annotation {ast.unparse(node)!r}")


@cache
def parse(annotation: str) -> Type:
    """Read one annotation."""
    return read(ast.parse(annotation, mode="eval").body)


def read(node: ast.expr) -> Type:
    """Turn the syntax of an annotation into a type.

    Raises:
        UnreadableAnnotation: The annotation is not a type expression of the protocol.
    """
    match node:
        case ast.Constant(value=None):
            return Null()
        case ast.Name(id=name):
            return _BUILTIN.get(name) or Named(name)
        case ast.BinOp(op=ast.BitOr()):
            return _union(node)
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return ListOf(read(item))
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, value])):
            return MapOf(read(value))
        case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
            return StringEnum(tuple(ast.literal_eval(value) for value in _elements(values)))
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[base, extra])):
            return _annotated(base, extra)
        case _:
            raise UnreadableAnnotation(node)


def _union(node: ast.expr) -> Type:
    # UnsetType affects how a field is sent, not its type.
    members = tuple(
        read(member)
        for member in _operands(node)
        if not (isinstance(member, ast.Name) and member.id == "UnsetType")
    )
    return members[0] if len(members) == 1 else Union(members)


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [*_operands(node.left), *_operands(node.right)]
    return [node]


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _annotated(base: ast.expr, extra: ast.expr) -> Type:
    match extra:
        case ast.Call(func=ast.Name(id="AnyOf"), args=names):
            return Union(tuple(Named(ast.literal_eval(name)) for name in names))
        case ast.Call(func=ast.Name(id="Meta"), keywords=[ast.keyword("min_length", length)]):
            return Scalar("string", min_length=ast.literal_eval(length))
        case _:
            raise UnreadableAnnotation(base)
