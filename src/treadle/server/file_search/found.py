"""What the file searches of one client keep, with a limit for all of them."""

from __future__ import annotations

from threading import Lock
from typing import Final

MAX_ENTRIES: Final = 1_000_000
"""Maximum number of files and folders that the searches of a client keep at the same time."""

MAX_CHARACTERS: Final = 64 * 1024 * 1024
"""Maximum length of their paths."""

# A search reserves room for some entries at once: a lock for each would take longer than the rest.
_ENTRIES: Final = 1000
_CHARACTERS: Final = 64 * 1024


class Found:
    """Counts what the searches of a client keep; used by their threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries = 0
        self._characters = 0

    def take(self, entries: int, characters: int) -> bool:
        """Reserve room; return false, and reserve nothing, if there is not enough."""
        with self._lock:
            is_full = (
                self._entries + entries > MAX_ENTRIES
                or self._characters + characters > MAX_CHARACTERS
            )
            if not is_full:
                self._entries += entries
                self._characters += characters
            return not is_full

    def give_back(self, entries: int, characters: int) -> None:
        """Release room."""
        with self._lock:
            self._entries -= entries
            self._characters -= characters


class Share:
    """The part of one search."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._taken = (0, 0)
        self._free_entries = 0
        self._free_characters = 0

    def add(self, characters: int) -> bool:
        """Count one more entry, which is much shorter than a reservation; false without room."""
        if self._free_entries < 1 or self._free_characters < characters:
            if not self._found.take(_ENTRIES, _CHARACTERS):
                return False
            entries, taken = self._taken
            self._taken = entries + _ENTRIES, taken + _CHARACTERS
            self._free_entries += _ENTRIES
            self._free_characters += _CHARACTERS
        self._free_entries -= 1
        self._free_characters -= characters
        return True

    def release(self) -> None:
        """Stop counting: the search has ended."""
        taken, self._taken = self._taken, (0, 0)
        self._found.give_back(*taken)
