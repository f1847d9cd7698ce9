"""Changes values in TOML text without touching its comments and order."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    from tomlkit.items import Item, Key

# A tomlkit table: a document, a table or an inline table.
_TomlTable: TypeAlias = "dict[str, Item]"
# The entries of a table in order; comments and empty lines have no key.
_Body: TypeAlias = "list[tuple[Key | None, Item]]"


class Unfaithful(Exception):
    """The text cannot be rewritten to hold exactly the intended values."""


def rewrite(text: str, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> str:
    """Change a text to hold the new values, preserving as much of it as possible.

    Raises:
        Unfaithful: no text holds exactly the new values and all comments.
    """
    if _typed(before) == _typed(after):
        return text
    is_dos = "\r\n" in text
    plain = text.replace("\r\n", "\n")
    if plain and not plain.endswith("\n"):
        plain += "\n"
    try:
        rewritten = _faithful(plain, before, after)
    except Unfaithful:
        # Some table styles cannot be extended: the changed keys are then removed and written again.
        changed = {key for key in before if _typed(before[key]) != _typed(after.get(key))}
        kept = {key: value for key, value in before.items() if key not in changed}
        rewritten = _faithful(_faithful(plain, before, kept), kept, after)
    if not plain.endswith("\n\n") and rewritten.endswith("\n\n"):
        rewritten = rewritten.rstrip("\n") + "\n"
    return rewritten.replace("\n", "\r\n") if is_dos else rewritten


def _faithful(text: str, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> str:
    try:
        rewritten = _rewrite(text, before, after)
        is_faithful = _typed(tomllib.loads(rewritten)) == _typed(after)
    except Exception as error:  # on any failure of tomlkit the file stays as it is
        raise Unfaithful(f"{type(error).__name__}: {error}") from error
    if not is_faithful:
        raise Unfaithful("the rewritten text does not hold the new values")
    return rewritten


def _typed(value: JsonValue) -> JsonValue:
    """Return a form that is equal only to a value of the same type: 1 is not true."""
    match value:
        case dict():
            return {key: _typed(inner) for key, inner in value.items()}
        case list():
            return [_typed(inner) for inner in value]
        case _:
            return type(value), value


def _rewrite(text: str, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    _update_table(cast(_TomlTable, document), before, after)
    return tomlkit.dumps(document)


def _update_table(
    table: _TomlTable, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]
) -> None:
    """Apply the differences to a table of tomlkit, and change nothing else."""
    for key in [key for key in before if key not in after]:
        _remove(table, key)
    for key, value in after.items():
        if key not in before:
            _add(table, key, value)
        elif _typed(before[key]) != _typed(value):
            _change(table, key, before[key], value)


def _change(table: _TomlTable, key: str, old: JsonValue, new: JsonValue) -> None:
    from tomlkit.items import AoT, Table

    item = table[key]
    if isinstance(old, dict) and isinstance(new, dict):
        _update_table(cast(_TomlTable, item), old, new)
    elif isinstance(item, AoT) and _are_tables(new):
        for place, (was, inner) in enumerate(zip(old, new, strict=False)):
            _update_table(cast(_TomlTable, item[place]), was, inner)
        tail = _take_tail(item)
        del item[len(new) :]
        for inner in new[len(old) :]:
            item.append(_new_item(table, inner))
        _append_tail(item, tail)
    elif isinstance(item, AoT | Table) or isinstance(new, dict):
        _remove(table, key)
        _add(table, key, new)
    else:
        table[key] = _inline(new)


def _add(table: _TomlTable, key: str, value: JsonValue) -> None:
    """Add a key after the last one, before any comment that belongs to the next table."""
    from tomlkit.items import AoT, Null, Table

    item = _new_item(table, value)
    body = _body(table)
    if isinstance(item, AoT | Table):
        tail = _take_tail(table) if isinstance(table, Table) else []
        table[key] = item
        _append_tail(table, tail)
        return
    # tomlkit inserts after the last entry before the first table, and counts comments as entries.
    places = _comments_of_next(body)
    comments = [body[place] for place in places]
    for place in places:
        body[place] = (None, Null())
    table[key] = item
    for place, comment in zip(places, comments, strict=True):
        if not isinstance(body[place + 1][1], Null):
            raise Unfaithful("a comment would be lost")
        body[place + 1] = comment


def _comments_of_next(body: _Body) -> list[int]:
    """Return the places of comments after the last plain key that belong to the next table."""
    from tomlkit.items import AoT, Comment, Table, Whitespace

    tables = [at for at, (_, item) in enumerate(body) if isinstance(item, AoT | Table)]
    end = next((at for at in tables if not _is_dotted(body[at][0])), len(body))
    keys = [at for at in range(end) if body[at][0] is not None]
    start = keys[-1] + 1 if keys else 0
    if not keys:
        # A comment at the top with an empty line below it belongs to the whole file.
        gaps = [at for at in range(end) if isinstance(body[at][1], Whitespace)]
        start = gaps[-1] + 1 if gaps else 0 if tables else end
    return [at for at in range(start, end) if isinstance(body[at][1], Comment)]


def _is_dotted(key: Key | None) -> bool:
    return key is not None and key.is_dotted()


def _remove(table: _TomlTable, key: str) -> None:
    """Remove a key, but keep a comment at its end that belongs to the next key."""
    from tomlkit.items import AoT, Comment, Table, Whitespace

    body = _body(table)
    places = [at for at, (name, _) in enumerate(body) if name is not None and name.key == key]
    tails = {at: _take_tail(item) for at in places if isinstance(item := body[at][1], AoT | Table)}
    del table[key]
    for at, tail in tails.items():
        if any(isinstance(item, Comment) for _, item in tail):
            text = "".join(item.as_string() for _, item in tail)
            body[at] = (None, Whitespace(text, fixed=True))


def _take_tail(item: object) -> _Body:
    """Cut off the comments and empty lines at the end of a table, or of its last inner table."""
    body = _last_body(item)
    start = len(body)
    while start and body[start - 1][0] is None:
        start -= 1
    tail = body[start:]
    del body[start:]
    return tail


def _append_tail(item: object, tail: _Body) -> None:
    _last_body(item).extend(tail)


def _last_body(item: object) -> _Body:
    from tomlkit.items import AoT, Table

    if isinstance(item, AoT):
        return _last_body(item[-1]) if len(item) else []
    body = _body(item)
    keyed = [each for key, each in body if key is not None]
    return _last_body(keyed[-1]) if keyed and isinstance(keyed[-1], AoT | Table) else body


def _body(item: object) -> _Body:
    """Return the entries of a table; empty for one that is split over several places."""
    from tomlkit.container import Container
    from tomlkit.items import AbstractTable

    container = item.value if isinstance(item, AbstractTable) else item
    return container.body if isinstance(container, Container) else []


def _new_item(parent: _TomlTable, value: JsonValue) -> Item:
    """Return a new value in the style of its table."""
    import tomlkit
    from tomlkit.items import InlineTable

    if isinstance(parent, InlineTable) or not (isinstance(value, dict) or _are_tables(value)):
        return _inline(value)
    if isinstance(value, list):
        tables = tomlkit.aot()
        for inner in value:
            tables.append(_new_item(parent, inner))
        return tables
    # A table that holds only tables needs no header.
    inners = value.values()
    is_super = bool(value) and all(isinstance(each, dict) or _are_tables(each) for each in inners)
    table = tomlkit.table(is_super_table=is_super)
    for key, inner in value.items():
        table[key] = _new_item(cast(_TomlTable, table), inner)
    return table


def _are_tables(value: JsonValue) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _inline(value: JsonValue) -> Item:
    import tomlkit

    match value:
        case dict():
            table = tomlkit.inline_table()
            table.update({key: _inline(inner) for key, inner in value.items()})
            return table
        case list():
            array = tomlkit.array()
            array.extend([_inline(inner) for inner in value])
            return array
        case _:
            return tomlkit.item(value)
