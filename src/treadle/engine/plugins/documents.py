"""Reads the JSON files of plugins and marketplaces, and the paths in them.

Both come from strangers: a file is regular, limited in size and nesting, and inside the folder that
it belongs to, also after links have been followed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from treadle.engine.plugins.ids import BadPlugin
from treadle.protocol.base import JsonValue
from treadle.support.files.reading import FileTooLarge, read_regular
from treadle.support.text.json_text import MAX_NESTING, is_nested_deeper

MAX_BYTES: Final = 1024 * 1024
MAX_TEXT: Final = 4096
MAX_LIST: Final = 64
MAX_PATH: Final = 1024
_BYTE: Final = re.compile(r" \(byte (\d+)\)\Z")


def read_document(path: Path, root: Path, limit: int = MAX_BYTES) -> JsonValue:
    """Return the content of a JSON file inside a folder.

    Raises:
        BadPlugin: it is not JSON, too large, or outside the folder; the message has no path.
        OSError: it cannot be read.
    """
    if not is_within(path, root):
        raise BadPlugin("it is a link that leads outside")
    try:
        data = read_regular(path, limit)
    except FileTooLarge as error:
        raise BadPlugin(f"expected at most {limit} bytes") from error
    if is_nested_deeper(data):
        raise BadPlugin(f"nested more than {MAX_NESTING} levels deep")
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise BadPlugin(_with_line(str(error), data)) from error
    except UnicodeDecodeError as error:
        raise BadPlugin("it is not UTF-8") from error


def _with_line(message: str, data: bytes) -> str:
    """Replace the number of a byte by line and column."""
    match = _BYTE.search(message)
    if match is None:
        lines = data.split(b"\n")
        return f"{message} at line {len(lines)} column {len(lines[-1])}"
    before = data[: int(match[1])]
    line, column = before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1
    return f"{message[: match.start()]} at line {line} column {column}"


def is_within(path: Path, root: Path) -> bool:
    """Return whether a path leads to a place in a folder, or to the folder itself."""
    real, top = os.path.realpath(path), os.path.realpath(root)
    return real == top or real.startswith(f"{top.rstrip('/')}/")


def path_below(root: Path, path: str) -> Path | None:
    """Return a path of a manifest, which starts with `./`, below its root; `None` if it leaves."""
    if not path.startswith("./") or "\0" in path or len(path) > MAX_PATH:
        return None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        return None
    below = root.joinpath(*parts)
    return below if is_within(below, root) else None


def as_table(value: JsonValue) -> dict[str, JsonValue]:
    """Return an object of a document; anything else counts as an empty one."""
    return value if isinstance(value, dict) else {}


def as_text(value: JsonValue) -> str | None:
    """Return a text of a document, cut where it is too long; `None` for anything else."""
    return value[:MAX_TEXT] if isinstance(value, str) else None


def as_texts(value: JsonValue) -> list[str]:
    """Return the texts of a list, at most `MAX_LIST`."""
    entries = value[:MAX_LIST] if isinstance(value, list) else []
    return [entry[:MAX_TEXT] for entry in entries if isinstance(entry, str)]
