"""Items in messages and in stored turns, apart from the times that differ from run to run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from treadle.protocol.base import JsonValue
from treadle.protocol.item import with_times
from treadle.protocol.turn import Turn


def untimed(item: JsonValue) -> JsonValue:
    """Return an item without its times, which it must have."""
    rest = dict(item)
    del rest["startedAtMs"], rest["completedAtMs"]
    return rest


def of_unknown_times(turns: Iterable[Turn]) -> list[Turn]:
    """Return turns as they are read from rollouts that have no times of items."""
    return [
        msgspec.structs.replace(turn, items=[with_times(item, None, None) for item in turn.items])
        for turn in turns
    ]
