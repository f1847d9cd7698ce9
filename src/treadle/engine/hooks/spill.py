"""Limits the text of hooks that the model reads; the whole text goes to a file of the thread."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.engine.terminals.output_file import folder_of
from treadle.engine.tools.output import tokens, truncate

if TYPE_CHECKING:
    from treadle.engine.state import ThreadState

DEFAULT_LIMIT: Final = 2_500
"""Tokens of one text that the model reads unless the hook sets another limit."""
MAX_LIMIT: Final = 25_000

logger = logging.getLogger(__name__)


async def for_model(thread: ThreadState, text: str, *, limit: int | None = None) -> str:
    """Return a text as the model reads it: shortened if it is long, with the place of the whole."""
    # Zero means only the general limit.
    allowed = min(DEFAULT_LIMIT if limit is None else limit or MAX_LIMIT, MAX_LIMIT)
    data = text.encode("utf-8", "replace")
    if tokens(len(data)) <= allowed:
        return text
    folder = folder_of(thread.services.home, thread.id)
    path = folder / f"hook-{os.urandom(6).hex()}.txt"
    footer = f"\n\nFull hook output saved to: {path}"
    try:
        await thread.services.file_workers.run(_write, path, data)
    except OSError as error:
        logger.warning("hook output not stored", extra={"reason": str(error)})
        footer = ""
    return truncate(text, max(0, allowed - tokens(len(footer)))) + footer


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
