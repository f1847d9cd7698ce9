"""Collects the definitions of all protocol modules, with or without experimental ones."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final

import msgspec
from msgspec import NODEFAULT, UNSET, Struct
from msgspec.structs import replace

from treadle import protocol
from treadle.protocol.base import EXPERIMENTAL, JsonValue, OneOf, SnakeOneOf
from treadle.protocol.export import annotation, envelope
from treadle.protocol.export.model import (
    NOT_GIVEN,
    Alias,
    Anything,
    Definition,
    Field,
    Named,
    Record,
    Type,
    Union,
    references,
    split_null,
)

_NO_TYPES = frozenset({"method", "client_requests", "server_requests", "notifications", "export"})

_FREE_KEYS: Final[dict[str, Type]] = {
    "AnalyticsConfig": Anything(),
    "AppLinksConfig": Named("AppLinkConfig"),
    "AppToolsConfig": Named("AppToolConfig"),
    "AppsConfig": Named("AppConfig"),
    "Config": Anything(),
}
"""Tables of the configuration that have keys beyond their fields, and the type of those keys."""


class Vocabulary:
    """All named types, with the lookups that a generator needs."""

    def __init__(self, definitions: Iterable[Definition]) -> None:
        self.definitions: Mapping[str, Definition] = {d.name: d for d in definitions}
        self.inline = frozenset(self._payloads())

    def reachable(self, roots: Iterable[str]) -> set[str]:
        """Return the names that the roots need, including the roots."""
        names: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name not in names:
                names.add(name)
                waiting.extend(self.needs(name))
        return names

    def needs(self, name: str) -> Iterator[str]:
        """Yield the names that a definition mentions, looking through inline types."""
        for mentioned in _mentions(self.definitions[name]):
            if mentioned in self.inline:
                yield from self.needs(mentioned)
            else:
                yield mentioned

    def record(self, name: str) -> Record | None:
        """Return the object with this name; `None` if it names another type."""
        definition = self.definitions[name]
        return definition if isinstance(definition, Record) else None

    def _payloads(self) -> Iterator[str]:
        """Find variants, and structs that only variants contain: they are written inline."""
        variants: set[str] = set()
        elsewhere: set[str] = set()
        for definition in self.definitions.values():
            names = set(_mentions(definition))
            is_payload = isinstance(definition, Record) and definition.is_choice
            payloads = {name for name in names if self._is_variant(name) or is_payload}
            variants |= {name for name in payloads if self.record(name)}
            elsewhere |= names - payloads
        yield from variants - elsewhere

    def _is_variant(self, name: str) -> bool:
        record = self.record(name)
        return record is not None and (record.tag is not None or record.is_choice)


def _mentions(definition: Definition) -> Iterator[str]:
    if isinstance(definition, Alias):
        yield from references(definition.type)
    else:
        for field in definition.fields:
            yield from references(field.type)
        if definition.rest is not None:
            yield from references(definition.rest)


@cache
def read_vocabulary(*, experimental: bool) -> Vocabulary:
    """Read every protocol module; without `experimental`, experimental parts are omitted."""
    definitions: dict[str, Definition] = {}
    for module in _modules():
        for definition in _definitions(module, experimental=experimental):
            if definition.name in definitions:
                message = f"two types have the name {definition.name!r}"
                raise ValueError(message)
            definitions[definition.name] = definition
    return Vocabulary(_without_missing(each, definitions) for each in definitions.values())


def _without_missing(definition: Definition, definitions: Container[str]) -> Definition:
    """Remove omitted variants from a union."""
    if isinstance(definition, Record) or not isinstance(definition.type, Union):
        return definition
    members = tuple(
        member
        for member in definition.type.members
        if not isinstance(member, Named) or member.name in definitions
    )
    return replace(definition, type=Union(members))


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.iter_modules(protocol.__path__):
        if info.name not in _NO_TYPES:
            yield import_module(f"{protocol.__name__}.{info.name}")
    yield envelope


def _definitions(module: ModuleType, *, experimental: bool) -> Iterator[Definition]:
    body = ast.parse(inspect.getsource(module)).body
    for position, node in enumerate(body):
        match node:
            case ast.ClassDef(name=name):
                struct = getattr(module, name)
                if _is_shown(struct, experimental=experimental):
                    yield _record(struct, experimental=experimental)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_alias(name, value):
                yield Alias(name, _doc_below(body[position + 1 :]), annotation.read(value))


# The struct bases have no fields and are not types of the protocol.
_BASES = frozenset(
    {"Value", "Sparse", "Params", "NoParams", "SnakeValue", "SnakeSparse", "OneOf", "SnakeOneOf"}
)


def _is_shown(class_: type, *, experimental: bool) -> bool:
    is_message = issubclass(class_, Struct) and class_.__name__ not in _BASES
    # A mark without field names covers the whole struct: a variant of a union.
    return is_message and (experimental or EXPERIMENTAL.get(class_) != frozenset())


def _is_alias(name: str, value: ast.expr) -> bool:
    is_type = isinstance(value, ast.Name | ast.BinOp | ast.Subscript)
    is_named_like_one = name[0].isupper() and not name.isupper()
    return is_type and is_named_like_one and name not in annotation.BUILTIN_NAMES


def _doc_below(following: list[ast.stmt]) -> str:
    match following[:1]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return inspect.cleandoc(text)
        case _:
            return ""


def _record(struct: type[Struct], *, experimental: bool) -> Record:
    config = struct.__struct_config__
    is_choice = issubclass(struct, OneOf | SnakeOneOf)
    hidden = frozenset[str]() if experimental else EXPERIMENTAL.get(struct, frozenset())
    fields = (
        _field(struct, position, is_choice=is_choice)
        for position, attribute in enumerate(struct.__struct_fields__)
        if attribute not in hidden
    )
    return Record(
        name=struct.__name__,
        doc=inspect.getdoc(struct) or "",
        fields=tuple(fields),
        tag=(config.tag_field, str(config.tag)) if config.tag_field else None,
        closed=config.forbid_unknown_fields or is_choice,
        is_choice=is_choice,
        rest=_FREE_KEYS.get(struct.__name__),
    )


def _field(struct: type[Struct], position: int, *, is_choice: bool) -> Field:
    attribute = struct.__struct_fields__[position]
    defaults = struct.__struct_defaults__
    first_default = len(struct.__struct_fields__) - len(defaults)
    default = defaults[position - first_default] if position >= first_default else NODEFAULT
    type_ = annotation.parse(_annotation(struct, attribute))
    name = struct.__struct_encode_fields__[position]
    if is_choice:
        return Field(name, split_null(type_)[0], required=True, omittable=False)
    is_left_out = struct.__struct_config__.omit_defaults and default is not NODEFAULT
    return Field(
        name=name,
        type=type_,
        required=default is NODEFAULT,
        omittable=is_left_out or default is UNSET,
        default=_as_json(default),
    )


def _annotation(struct: type[Struct], attribute: str) -> str:
    for base in struct.__mro__:
        text = inspect.get_annotations(base).get(attribute)
        if isinstance(text, str):
            return text
    message = f"{struct.__name__}.{attribute} has no annotation in text form"
    raise TypeError(message)


def _as_json(default: object) -> JsonValue:
    if default is NODEFAULT or default is UNSET or default is None:
        return NOT_GIVEN
    factory = getattr(default, "factory", None)
    return msgspec.to_builtins(factory() if factory else default)


def alias_of(vocabulary: Vocabulary, structs: Iterable[type[Struct]]) -> str:
    """Find the alias of a union of structs.

    Raises:
        LookupError: No alias has these members.
    """
    members = {Named(struct.__name__) for struct in structs}
    shown = {member for member in members if member.name in vocabulary.definitions}
    for definition in vocabulary.definitions.values():
        match definition:
            case Alias(name, type=Union(alternatives)) if set(alternatives) == shown:
                return name
            case _:
                continue
    message = f"no alias for {members}"
    raise LookupError(message)
