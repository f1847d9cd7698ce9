"""Creates instances of any struct: with as few fields as possible, or with all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from msgspec import Struct, inspect

from treadle.protocol.base import JsonValue, OneOf, SnakeOneOf
from treadle.protocol.export.vocabulary import read_vocabulary

DEEPEST = 4


def all_structs() -> dict[str, type[Struct]]:
    """Return every struct of the protocol by name."""

    def below(base: type[Struct]) -> Iterator[type[Struct]]:
        for struct in base.__subclasses__():
            yield struct
            yield from below(struct)

    definitions = read_vocabulary(experimental=True).definitions
    return {
        struct.__name__: struct
        for struct in below(Struct)
        if struct.__name__ in definitions and struct.__module__.startswith("treadle.protocol.")
    }


def least(struct: type[Struct]) -> JsonValue:
    """Create an instance with the required fields only."""
    return _instance(struct, depth=DEEPEST)


def fullest(struct: type[Struct]) -> JsonValue:
    """Create an instance with every field, down to a depth that ends recursion."""
    return _instance(struct, depth=0)


def _instance(struct: type[Struct], *, depth: int) -> JsonValue:
    fields = _fields(struct)
    if issubclass(struct, OneOf | SnakeOneOf):
        chosen = fields[:1]
    elif depth >= DEEPEST:
        chosen = tuple(field for field in fields if field.required)
    else:
        chosen = fields
    return struct(**{field.name: _value(field.type, depth=depth + 1) for field in chosen})


@cache
def _fields(struct: type[Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info.fields


_PLAIN: dict[type[inspect.Type], JsonValue] = {
    inspect.AnyType: {"any": [1, None]},
    inspect.BoolType: True,
    inspect.FloatType: 0.5,
    inspect.IntType: 7,
    inspect.StrType: "text",
}


def _value(type_: inspect.Type, *, depth: int) -> JsonValue:
    match type_:
        case inspect.StructType(cls=struct):
            return _instance(struct, depth=depth)
        case inspect.UnionType(types=members):
            real = [each for each in members if not isinstance(each, inspect.NoneType)]
            return _value(real[0], depth=depth)
        case inspect.ListType(item_type=item):
            return [] if _is_end(item, depth) else [_value(item, depth=depth)]
        case inspect.DictType(value_type=value):
            return {} if _is_end(value, depth) else {"key": _value(value, depth=depth)}
        case inspect.LiteralType(values=values):
            return values[0]
        case _:
            return _PLAIN[type(type_)]


def _is_end(part: inspect.Type, depth: int) -> bool:
    # A free-form object may be limited by an annotation that msgspec does not know.
    return depth > DEEPEST or isinstance(part, inspect.DictType)
