"""The imports of the past, as lines of JSON in the home."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from treadle.config.edit.user_file import edit_file
from treadle.protocol.external_agent import ExternalAgentConfigImportHistory
from treadle.support.files.reading import read_whole

FILE_NAME: Final = "external-agent-imports.jsonl"
MAX_BYTES: Final = 1024 * 1024
_decode = msgspec.json.Decoder(ExternalAgentConfigImportHistory).decode

logger = logging.getLogger(__name__)


def add(home: Path, entry: ExternalAgentConfigImportHistory) -> None:
    """Append an import; the oldest ones make room for it.

    Raises:
        OSError: it cannot be written.
    """
    line = msgspec.json.encode(entry)

    def appended(content: bytes) -> bytes:
        lines = [*content.splitlines(), line]
        while len(lines) > 1 and sum(map(len, lines)) + len(lines) > MAX_BYTES:
            del lines[0]
        return b"\n".join(lines) + b"\n"

    edit_file(home / FILE_NAME, appended)


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
