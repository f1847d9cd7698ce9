"""The unfinished items of a response, found in constant time and limited in number.

A provider decides how many items it starts and in which order it finishes them: searching all of
them for each event would let one stream block the event loop for minutes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

from msgspec import Struct

from treadle.model.base import ModelError
from treadle.model.naming import short_name
from treadle.protocol.base import JsonValue

MAX_OPEN_ITEMS: Final = 1_000
"""The maximum number of unfinished items in a response."""

MAX_ALIASES: Final = 16
"""How many ids of one item are remembered: some servers use another one in each event."""

_MAX_INDEX: Final = 64

Index = int | float | str | None


class UnfinishedItem(Struct, eq=False):
    """An unfinished item: the id that the caller knows, and the server's ids for it."""

    id: str
    kind: str
    server_id: str | None
    output_index: Index
    call_id: str | None = None
    number: int = 0
    aliases: list[str] = []


class UnfinishedItems:
    """Unfinished items by the server's ids, by output index and by kind."""

    def __init__(self, *, limit: int = MAX_OPEN_ITEMS) -> None:
        self.by_id: dict[str | None, UnfinishedItem] = {}
        """The items by every id that the server has used for them."""
        self._limit = limit
        self._count = 0
        self._started = 0
        # Each group has its items in the order of their start.
        self._groups: dict[Hashable, OrderedDict[int, UnfinishedItem]] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, item: UnfinishedItem) -> None:
        """Add an item that starts.

        Raises:
            ModelError: too many items are unfinished.
        """
        require_room(self._count, self._limit)
        self._count += 1
        self._started += 1
        item.number = self._started
        for key in _groups_of(item):
            self._groups.setdefault(key, OrderedDict())[item.number] = item
        if item.server_id is not None:
            self._name(item, item.server_id)

    def remove(self, item: UnfinishedItem) -> None:
        """Remove a finished item, with all its ids."""
        self._count -= 1
        for key in _groups_of(item):
            group = self._groups[key]
            del group[item.number]
            if not group:
                del self._groups[key]
        for alias in item.aliases:
            del self.by_id[alias]

    def find(
        self, server_id: JsonValue, output_index: JsonValue, kinds: Sequence[str]
    ) -> UnfinishedItem | None:
        """Return the item that an event most likely means: by id, else by index, else the newest.

        A new id is stored as another id of the item.
        """
        id_ = short_name(server_id) if isinstance(server_id, str) else None
        known = self.by_id.get(id_)
        if known is not None:
            return known
        index = index_of(output_index)
        if index is not None:
            found = self._newest("index", kinds, index) or self._newest("index", kinds, None)
        elif id_ is not None:
            found = self._newest("unnamed", kinds)
        else:
            found = self._newest("all", kinds)
        if found is not None and id_ is not None:
            self._name(found, id_)
        return found

    def _name(self, item: UnfinishedItem, id_: str) -> None:
        self.by_id[id_] = item
        item.aliases.append(id_)
        if len(item.aliases) > MAX_ALIASES:
            # The first one is the id of its start.
            del self.by_id[item.aliases.pop(1)]

    def _newest(self, group: str, kinds: Sequence[str], *rest: Index) -> UnfinishedItem | None:
        newest: UnfinishedItem | None = None
        for kind in kinds:
            items = self._groups.get((group, kind, *rest))
            last = next(reversed(items.values())) if items else None
            if last is not None and (newest is None or last.number > newest.number):
                newest = last
        return newest


def require_room(count: int, limit: int = MAX_OPEN_ITEMS) -> None:
    """Check that one more item may start.

    Raises:
        ModelError: the maximum is reached.
    """
    if count >= limit:
        raise ModelError(
            f"the response has more than {limit} unfinished items at one time", phase="stream"
        )


def index_of(value: JsonValue) -> Index:
    """Return an index that a provider sent; `None` for an impossible value."""
    if isinstance(value, str) and len(value) > _MAX_INDEX:
        return None
    return value if isinstance(value, int | float | str) else None


def _groups_of(item: UnfinishedItem) -> list[Hashable]:
    groups: list[Hashable] = [("all", item.kind), ("index", item.kind, item.output_index)]
    return groups if item.server_id is not None else [*groups, ("unnamed", item.kind)]
