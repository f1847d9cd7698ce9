"""What agents that work for others are there for, and what they are called."""

from __future__ import annotations

from collections.abc import Container
from itertools import count
from typing import Final, NamedTuple


class Role(NamedTuple):
    """A kind of agent: as the model that chooses it reads it, and as the agent itself does."""

    description: str
    instructions: str | None = None


ROLES: Final = {
    "default": Role("An agent like you."),
    "explorer": Role(
        "Finds things out: quick, well-defined questions about the code. Changes nothing.",
        "You answer a question of another agent. Look where it has to be looked, change nothing, "
        "and give the answer with the paths and lines that prove it.",
    ),
    "worker": Role(
        "Carries out a task with a clear end. Say which files are its own; others may be at work.",
        "You carry out a task for another agent. Others may be at work in the same folder: keep to "
        "the files you were given, leave what they change alone, and say at the end what you did.",
    ),
}

NAMES: Final = (
    *("Ada", "Arachne", "Berthe", "Cartwright", "Clotho", "Crompton", "Damask", "Edda", "Falcon"),
    *("Gunta", "Hargreaves", "Heddle", "Ikat", "Jacquard", "Kay", "Lachesis", "Lucet", "Madder"),
    *("Nettle", "Ottoman", "Penelope", "Pirn", "Quill", "Raddle", "Selvage", "Sericin", "Sley"),
    *("Temple", "Twill", "Umber", "Velours", "Vaucanson", "Warp", "Weft", "Woad", "Zari"),
)


def free_name(taken: Container[str]) -> str:
    """The first name that nobody has; when all are taken, they begin anew with a number."""
    for generation in count(1):
        for name in NAMES:
            candidate = name if generation == 1 else f"{name} {generation}"
            if candidate not in taken:
                return candidate
    raise AssertionError  # the loop has no end of its own
