"""The resources that all patches of a server share."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from treadle.support.concurrency.key_locks import KeyLocks
from treadle.support.concurrency.workers import Workers

MAX_PATCHES: Final = 8
"""How many patches are processed in parallel; each has its files in memory."""


class PatchResources(Struct, frozen=True):
    """The threads that read and write files, and the locks of files by path."""

    workers: Workers = field(default_factory=lambda: Workers("patch", MAX_PATCHES))
    files: KeyLocks = field(default_factory=KeyLocks)
