"""The imports of the past, as lines of JSON in the home."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from treadle.config.edit.user_file import edit_file
from treadle.protocol.external_agent import ExternalAgentConfigImportHistory
from treadle.support.files.reading import read_whole

FILE_NAME: Final = "external-agent-imports.jsonl"
MAX_BYTES: Final = 1024 * 1024
MAX_ENTRY_BYTES: Final = 256 * 1024
"""The maximum size of one import: a longer one loses parts at the end of its lists."""

_decode = msgspec.json.Decoder(ExternalAgentConfigImportHistory).decode

logger = logging.getLogger(__name__)


def add(home: Path, entry: ExternalAgentConfigImportHistory) -> None:
    """Append an import; the oldest ones make room for it.

    Raises:
        OSError: it cannot be written.
    """
    line = _line(entry)

    def appended(content: bytes) -> bytes:
        lines = [*content.splitlines(), line]
        while len(lines) > 1 and sum(map(len, lines)) + len(lines) > MAX_BYTES:
            del lines[0]
        return b"\n".join(lines) + b"\n"

    path = home / FILE_NAME
    with suppress(FileNotFoundError):
        if path.stat().st_size > MAX_BYTES:
            # Another program has written it: it can neither be read nor changed.
            path.replace(path.with_name(f"{FILE_NAME}.damaged"))
    edit_file(path, appended)


def _line(entry: ExternalAgentConfigImportHistory) -> bytes:
    while len(line := msgspec.json.encode(entry)) > MAX_ENTRY_BYTES:
        entry = structs.replace(
            entry,
            failures=entry.failures[: len(entry.failures) // 2],
            successes=entry.successes[: len(entry.successes) // 2],
        )
    return line


def read(home: Path) -> Sequence[ExternalAgentConfigImportHistory]:
    """Return all imports, the latest first; a damaged line is left out.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        content = read_whole(home / FILE_NAME, 2 * MAX_BYTES)
    except FileNotFoundError:
        return []
    found: list[ExternalAgentConfigImportHistory] = []
    for line in reversed(content.splitlines()):
        try:
            found.append(_decode(line))
        except msgspec.DecodeError:
            logger.warning("line skipped", extra={"file": FILE_NAME})
    return found
