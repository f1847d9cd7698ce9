"""What the record of writable folders says about the settings of projects."""

# Text is what the record holds.
# ruff: noqa: PTH118

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.sandbox.paths import links

if TYPE_CHECKING:
    from treadle.sandbox.opened_roots import OpenedRoots


class Planted:
    """Judges files and links by the record, which is read when it is first needed."""

    def __init__(self, opened: Callable[[], OpenedRoots]) -> None:
        self._opened = opened

    def made(self, path: Path, folder: Path) -> bool:
        """Whether a command could have made or changed a file of a folder."""
        above = os.path.realpath(folder)
        place = os.path.join(above, path.relative_to(folder))
        return self._opened().may_have_made(place, above=above)

    def led(self, path: Path) -> bool:
        """Whether a link on the way to a path may be a command's work."""
        return any(map(self._opened().may_have_made, links(str(path))))
