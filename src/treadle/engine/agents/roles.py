"""The roles and nicknames of sub-agents."""

from __future__ import annotations

from collections.abc import Container
from itertools import count
from typing import Final, NamedTuple


class Role(NamedTuple):
    """A kind of sub-agent: its description for the parent, and its own instructions."""

    description: str
    instructions: str | None = None


ROLES: Final = {
    "default": Role("An agent like you."),
    "explorer": Role(
        "Answers quick, well-defined questions about the code. Changes nothing.",
        "You answer a question from another agent. Look wherever necessary, change nothing, and "
        "give the answer with the paths and lines that prove it.",
    ),
    "worker": Role(
        "Does a well-defined task. State which files it owns; other agents may be working too.",
        "You do a task for another agent. Others may be working in the same folder: change only "
        "the files assigned to you, leave their changes alone, and report at the end what you did.",
    ),
}

NAMES: Final = (
    *("Ada", "Arachne", "Berthe", "Cartwright", "Clotho", "Crompton", "Damask", "Edda", "Falcon"),
    *("Gunta", "Hargreaves", "Heddle", "Ikat", "Jacquard", "Kay", "Lachesis", "Lucet", "Madder"),
    *("Nettle", "Ottoman", "Penelope", "Pirn", "Quill", "Raddle", "Selvage", "Sericin", "Sley"),
    *("Temple", "Twill", "Umber", "Velours", "Vaucanson", "Warp", "Weft", "Woad", "Zari"),
)


def free_name(taken: Container[str]) -> str:
    """Return the first unused name; when all are used, names get a number."""
    for generation in count(1):
        for name in NAMES:
            candidate = name if generation == 1 else f"{name} {generation}"
            if candidate not in taken:
                return candidate
    raise AssertionError  # unreachable: the loop never ends by itself
