"""Who wrote a message in the user's role: stored with the item, never sent to a model or a client.

The automatic reviewer treats what the user wrote as authorization. Text of the model and of other
agents reaches the conversation in the user's role too, so the text cannot show who wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from treadle.model.base import ModelItem

Source: TypeAlias = Literal["server", "agent"]

_KEY: Final = "treadle_source"


def written_by(source: Source, item: ModelItem) -> ModelItem:
    """Return a message in the user's role that the server or another agent wrote."""
    return {**item, _KEY: source} if item.get("role") == "user" else item


def source_of(item: ModelItem) -> str | None:
    """Return who wrote a message; `None` if that was not recorded, as for the user's own."""
    source = item.get(_KEY)
    return None if source is None else str(source)


def without_sources(items: Iterable[ModelItem]) -> list[ModelItem]:
    """Return the items as a model or a client receives them."""
    return [
        {name: value for name, value in item.items() if name != _KEY} if _KEY in item else item
        for item in items
    ]
