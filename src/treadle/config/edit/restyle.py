"""Makes a text of TOML say something else, and leaves its comments and its order as they are."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

from treadle.protocol.base import JsonValue

if TYPE_CHECKING:
    from tomlkit.items import Item, Key

# A table as tomlkit has it: a document, a part of one, or one in a line.
_Styled: TypeAlias = "dict[str, Item]"
# What a table is made of, in order; comments and empty lines have no key.
_Body: TypeAlias = "list[tuple[Key | None, Item]]"


class Unfaithful(Exception):
    """The text would not say what it should."""


def rewrite(text: str, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> str:
    """Make a text say something else, with as much of it left as it was as can be.

    Raises:
        Unfaithful: it could not be made to.
    """
    if _plain(before) == _plain(after):
        return text
    is_dos = "\r\n" in text
    plain = text.replace("\r\n", "\n")
    if plain and not plain.endswith("\n"):
        plain += "\n"
    try:
        found = _faithful(plain, before, after)
    except Unfaithful:
        # Some styles of tables cannot be added to: what changes is then written afresh.
        changed = {key for key in before if _plain(before[key]) != _plain(after.get(key))}
        kept = {key: value for key, value in before.items() if key not in changed}
        found = _faithful(_faithful(plain, before, kept), kept, after)
    if not plain.endswith("\n\n") and found.endswith("\n\n"):
        found = found.rstrip("\n") + "\n"
    return found.replace("\n", "\r\n") if is_dos else found


def _faithful(text: str, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> str:
    try:
        found = _rewrite(text, before, after)
        is_faithful = _plain(tomllib.loads(found)) == _plain(after)
    except Exception as error:  # whatever tomlkit trips over, the file stays as it is
        raise Unfaithful(f"{type(error).__name__}: {error}") from error
    if not is_faithful:
        raise Unfaithful("the text would say something else than it should")
    return found


def _plain(value: JsonValue) -> JsonValue:
    """A value that is equal only to its like: 1 is not true."""
    match value:
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case _:
            return type(value), value


def _rewrite(text: str, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    _restyle(cast(_Styled, document), before, after)
    return tomlkit.dumps(document)


def _restyle(
    styled: _Styled, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]
) -> None:
    """Make a styled table say what is different, and touch nothing else."""
    for key in [key for key in before if key not in after]:
        _remove(styled, key)
    for key, value in after.items():
        if key not in before:
            _add(styled, key, value)
        elif _plain(before[key]) != _plain(value):
            _change(styled, key, before[key], value)


def _change(styled: _Styled, key: str, old: JsonValue, new: JsonValue) -> None:
    from tomlkit.items import AoT, Table

    item = styled[key]
    if isinstance(old, dict) and isinstance(new, dict):
        _restyle(cast(_Styled, item), old, new)
    elif isinstance(item, AoT) and _are_tables(new):
        for place, (was, inner) in enumerate(zip(old, new, strict=False)):
            _restyle(cast(_Styled, item[place]), was, inner)
        tail = _take_tail(item)
        del item[len(new) :]
        for inner in new[len(old) :]:
            item.append(_styled_like(styled, inner))
        _give_tail(item, tail)
    elif isinstance(item, AoT | Table) or isinstance(new, dict):
        _remove(styled, key)
        _add(styled, key, new)
    else:
        styled[key] = _in_a_line(new)


def _add(styled: _Styled, key: str, value: JsonValue) -> None:
    """Add a key after the last one, before the comment that speaks of what follows the table."""
    from tomlkit.items import AoT, Null, Table

    item = _styled_like(styled, value)
    body = _body(styled)
    if isinstance(item, AoT | Table):
        tail = _take_tail(styled) if isinstance(styled, Table) else []
        styled[key] = item
        _give_tail(styled, tail)
        return
    # tomlkit looks for the last thing before the first table, and takes a comment for one.
    places = _comments_of_next(body)
    comments = [body[place] for place in places]
    for place in places:
        body[place] = (None, Null())
    styled[key] = item
    for place, comment in zip(places, comments, strict=True):
        if not isinstance(body[place + 1][1], Null):
            raise Unfaithful("a comment would be lost")
        body[place + 1] = comment


def _comments_of_next(body: _Body) -> list[int]:
    """Where the comments are that come after the last plain key, and speak of the next table."""
    from tomlkit.items import AoT, Comment, Table, Whitespace

    tables = [at for at, (_, item) in enumerate(body) if isinstance(item, AoT | Table)]
    end = next((at for at in tables if not _is_dotted(body[at][0])), len(body))
    keys = [at for at in range(end) if body[at][0] is not None]
    start = keys[-1] + 1 if keys else 0
    if not keys:
        # What stands above all else, with an empty line below it, speaks of the whole.
        gaps = [at for at in range(end) if isinstance(body[at][1], Whitespace)]
        start = gaps[-1] + 1 if gaps else 0 if tables else end
    return [at for at in range(start, end) if isinstance(body[at][1], Comment)]


def _is_dotted(key: Key | None) -> bool:
    return key is not None and key.is_dotted()


def _remove(styled: _Styled, key: str) -> None:
    """Remove a key, but not the comment at the end of it that speaks of what follows."""
    from tomlkit.items import AoT, Comment, Table, Whitespace

    body = _body(styled)
    places = [at for at, (name, _) in enumerate(body) if name is not None and name.key == key]
    tails = {at: _take_tail(item) for at in places if isinstance(item := body[at][1], AoT | Table)}
    del styled[key]
    for at, tail in tails.items():
        if any(isinstance(item, Comment) for _, item in tail):
            text = "".join(item.as_string() for _, item in tail)
            body[at] = (None, Whitespace(text, fixed=True))


def _take_tail(item: object) -> _Body:
    """Take off the comments and empty lines at the end of a table, or of the last one in it."""
    body = _last_body(item)
    start = len(body)
    while start and body[start - 1][0] is None:
        start -= 1
    tail = body[start:]
    del body[start:]
    return tail


def _give_tail(item: object, tail: _Body) -> None:
    _last_body(item).extend(tail)


def _last_body(item: object) -> _Body:
    from tomlkit.items import AoT, Table

    if isinstance(item, AoT):
        return _last_body(item[-1]) if len(item) else []
    body = _body(item)
    keyed = [each for key, each in body if key is not None]
    return _last_body(keyed[-1]) if keyed and isinstance(keyed[-1], AoT | Table) else body


def _body(item: object) -> _Body:
    """What a table is made of; one that lies in several places has nothing to hold on to."""
    from tomlkit.container import Container
    from tomlkit.items import AbstractTable

    container = item.value if isinstance(item, AbstractTable) else item
    return container.body if isinstance(container, Container) else []


def _styled_like(parent: _Styled, value: JsonValue) -> Item:
    """A new value, in the style that goes with the table that it is for."""
    import tomlkit
    from tomlkit.items import InlineTable

    if isinstance(parent, InlineTable) or not (isinstance(value, dict) or _are_tables(value)):
        return _in_a_line(value)
    if isinstance(value, list):
        tables = tomlkit.aot()
        for inner in value:
            tables.append(_styled_like(parent, inner))
        return tables
    # A table that only holds others needs no heading of its own.
    inners = value.values()
    is_super = bool(value) and all(isinstance(each, dict) or _are_tables(each) for each in inners)
    table = tomlkit.table(is_super_table=is_super)
    for key, inner in value.items():
        table[key] = _styled_like(cast(_Styled, table), inner)
    return table


def _are_tables(value: JsonValue) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _in_a_line(value: JsonValue) -> Item:
    import tomlkit

    match value:
        case dict():
            table = tomlkit.inline_table()
            table.update({key: _in_a_line(inner) for key, inner in value.items()})
            return table
        case list():
            array = tomlkit.array()
            array.extend([_in_a_line(inner) for inner in value])
            return array
        case _:
            return tomlkit.item(value)
