"""Edits of a settings table: set, merge and remove values by key path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from treadle.config.edit.key_path import KeyPath
from treadle.config.settings import Table
from treadle.protocol.base import JsonValue

_INT64: Final = range(-(2**63), 2**63)


class TableEdit(NamedTuple):
    """A value for a key, or null to remove it; tables are merged or replaced."""

    path: KeyPath
    value: JsonValue
    is_upsert: bool = False


class BadEdit(ValueError):
    """The edit cannot be made; clients rely on the message."""

    def __init__(self, message: str, path: KeyPath) -> None:
        super().__init__(message)
        self.path = path


def apply(table: Mapping[str, JsonValue], edits: Iterable[TableEdit]) -> Table:
    """Return a copy of the table with the edits applied in order.

    Raises:
        BadEdit: the value does not exist in TOML, or a parent of the key is not a table.
    """
    root: Table = _copied(table)
    for edit in edits:
        _check_value(edit.value, edit.path)
        _apply_one(root, edit)
    return root


def _copied(table: Mapping[str, JsonValue]) -> Table:
    return {
        key: _copied(value) if isinstance(value, dict) else value for key, value in table.items()
    }


def _apply_one(table: Table, edit: TableEdit) -> None:
    *parents, key = edit.path
    for name in parents:
        if name not in table:
            if edit.value is None:
                return
            table[name] = {}
        if not isinstance(table[name], dict):
            if edit.value is None:
                return
            raise BadEdit("cannot set value on non-table parent", edit.path)
        table = table[name]
    if edit.value is None:
        table.pop(key, None)
    elif edit.is_upsert:
        _join(table, key, edit.value)
    else:
        table[key] = edit.value


def _join(table: Table, key: str, value: JsonValue) -> None:
    below = table.get(key)
    if isinstance(below, dict) and isinstance(value, dict):
        for name, inner in value.items():
            _join(below, name, inner)
    else:
        table[key] = _copied(value) if isinstance(value, dict) else value


def _check_value(value: JsonValue, path: KeyPath, *, is_inner: bool = False) -> None:
    match value:
        case None if is_inner:
            message = "invalid value: invalid type: null, expected any valid TOML value"
            raise BadEdit(message, path)
        case int() if value not in _INT64:
            raise BadEdit("invalid value: the integer does not fit 64 bits", path)
        case dict():
            for name, inner in value.items():
                _check_value(inner, (*path, name), is_inner=True)
        case list():
            for inner in value:
                _check_value(inner, path, is_inner=True)
        case _:
            pass
