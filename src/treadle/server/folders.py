"""Folders that clients name: how long and how many they may be.

A folder is looked at together with every folder above it, so its depth decides how much work one
request causes. The limits are checked where a request comes in, before any of that work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.engine.errors import InvalidInput

# PATH_MAX of Linux counts the zero byte at the end as well.
MAX_PATH_BYTES: Final = 4095
MAX_COMPONENTS: Final = 256
MAX_FOLDERS: Final = 100


def check_folder(folder: str | None, field: str = "cwd") -> None:
    """Check a folder that a client names; `field` is where the request has it.

    Raises:
        InvalidInput: the path is too long or too deep.
    """
    if folder is None:
        return
    size = len(folder.encode("utf-8", "surrogatepass"))
    if size > MAX_PATH_BYTES:
        raise InvalidInput(field, f"{field} must have at most {MAX_PATH_BYTES} bytes, not {size}")
    depth = sum(1 for part in folder.split("/") if part)
    if depth > MAX_COMPONENTS:
        limit = f"at most {MAX_COMPONENTS} components"
        raise InvalidInput(field, f"{field} must have {limit}, not {depth}")


def check_folders(folders: Sequence[str], field: str = "cwds") -> None:
    """Check a list of folders that a client names.

    Raises:
        InvalidInput: there are too many, or one of them is too long or too deep.
    """
    if len(folders) > MAX_FOLDERS:
        limit = f"at most {MAX_FOLDERS} entries"
        raise InvalidInput(field, f"{field} must have {limit}, not {len(folders)}")
    for at, folder in enumerate(folders):
        check_folder(folder, f"{field}[{at}]")
