"""Judges project settings by the record of folders that commands could write."""

# Plain text, because the record holds text.
# ruff: noqa: PTH118

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.sandbox.paths import links, real

if TYPE_CHECKING:
    from treadle.sandbox.opened_roots import OpenedRoots


class Planted:
    """Decides which files and links a command may have made; reads the record on first use."""

    def __init__(self, opened: Callable[[], OpenedRoots]) -> None:
        self._opened = opened

    def made(self, path: Path, folder: Path) -> bool:
        """Return whether a command could have created or changed a file of a folder."""
        above = real(str(folder))
        place = os.path.join(above, path.relative_to(folder))
        return self._opened().may_have_made(place, above=above)

    def led(self, path: Path) -> bool:
        """Return whether a command may have made a link on the way to a path."""
        return any(map(self._opened().may_have_made, links(str(path))))
