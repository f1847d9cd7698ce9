"""Where a thread stands in the organization of its home."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treadle.protocol.section import ThreadSection


class Placement(Struct, frozen=True):
    """In a section since a time in seconds, and in a project."""

    section: ThreadSection | None = None
    entered_at: int | None = None
    project_id: str | None = None


NOWHERE: Final = Placement()
