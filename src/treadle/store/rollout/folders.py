"""The folders that hold rollouts: lists them, and removes unfinished files."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from treadle.store.lease import Lease

UUID_CHARACTERS: Final = 36

logger = logging.getLogger(__name__)


def newest_first(folder: str) -> list[str]:
    """Return the subfolders of a folder, newest first: their names are zero-padded dates."""
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        logger.warning("folder skipped", extra={"path": folder, "reason": str(error)})
        return []
    return sorted((path for path in found if os.path.isdir(path)), reverse=True)  # noqa: PTH112 - years of folders, each time


def rollouts_in(folder: str) -> set[str] | None:
    """Return the rollouts in a folder, or `None` if it cannot be read now."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  a Path for each of many files is slow
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        logger.warning("folder skipped", extra={"path": folder, "reason": str(error)})
        return None
    found = {f"{folder}/{name}" for name in names if name.startswith("rollout-")}
    for path in found:
        if path.endswith(".jsonl.zst"):
            logger.warning("compressed rollout skipped", extra={"path": path})
    return {path for path in found if path.endswith(".jsonl")}


def remove_orphans(folder: str, home: Path) -> None:
    """Remove unfinished rollouts that a killed server left under a temporary name.

    A server that is still creating one holds the lease of its thread.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208  a Path for each of many files is slow
    except OSError:
        return
    for name in names:
        if name.startswith(".rollout-") and name.endswith(".jsonl"):
            thread_id = name.removesuffix(".jsonl")[-UUID_CHARACTERS:]
            if not Lease.is_held(home, thread_id):
                with suppress(OSError):
                    os.unlink(f"{folder}/{name}")  # noqa: PTH108  the path is a string


def stat_of(path: str) -> os.stat_result | None:
    """Return the stat of a file, or of the link itself if its target is inaccessible."""
    try:
        return os.stat(path)  # noqa: PTH116  a Path for each of many files costs more than the call
    except FileNotFoundError:
        return None
    except OSError:
        pass
    try:
        return os.lstat(path)
    except OSError:
        return None


def segment_of(name: str) -> str:
    """Return the suffix by which the files of a reverted thread sort; empty if there is none."""
    return name.removesuffix(".jsonl").partition("_")[2]
