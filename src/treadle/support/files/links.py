"""Follows links as far as the kernel does, whatever a workspace contains."""

# Paths are strings here, as in the calls of the system.
# ruff: noqa: PTH115, PTH118, PTH120

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from treadle.support.files.working_folder import absolute

# The kernel's limit.
_LINKS: Final = 40
# The parts in targets of links. The kernel has no limit for these, but each costs a system call.
_STEPS: Final = 1024
_MAGIC: Final = re.compile(r"/proc/\d+/(?:task/\d+/)?fd/\d+")


class Way(NamedTuple):
    """Where a path leads, and the links on the way there, as of one moment."""

    place: str
    links: tuple[str, ...] = ()
    is_too_long: bool = False
    """The kernel follows no more links; the place is where they stop."""


def follow(path: str) -> Way:
    """Follow the links of a path, each of which is read once.

    A check of the links is only of use together with the place that just these links lead to.
    """
    found: list[str] = []
    place, ahead = "/", absolute(path).split("/")[::-1]
    steps = 0
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            place = os.path.dirname(place)
            continue
        here = os.path.join(place, name)
        try:
            # Such a link only describes what the system opens.
            target = "" if _MAGIC.fullmatch(here) else os.readlink(here)
        except (OSError, ValueError):  # no path contains a null byte
            target = ""
        if not target:
            place = here
            continue
        found.append(here)
        parts = target.split("/")
        steps += len(parts)
        if len(found) == _LINKS or steps > _STEPS:
            rest = [part for part in reversed(ahead) if part not in ("", ".", "..")]
            return Way(os.path.join(here, *rest), tuple(found), is_too_long=True)
        place = "/" if target.startswith("/") else place
        ahead += parts[::-1]
    return Way(place, tuple(found))
