"""The resources that all patches of a server share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from treadle.support.concurrency.key_locks import KeyLocks
from treadle.support.concurrency.workers import Workers

MAX_PATCHES: Final = 8
"""How many patches are processed in parallel; each has its files in memory."""


@dataclass(frozen=True, slots=True)
class PatchResources:
    """The threads that read and write files, and the locks of files by path."""

    workers: Workers = field(default_factory=lambda: Workers("patch", MAX_PATCHES))
    files: KeyLocks = field(default_factory=KeyLocks)
