"""Limits on the folders that clients name: length, depth and number.

A folder is examined together with all its parents, so its depth decides how much work one request
causes. The limits are checked when a request arrives, before any of that work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.engine.errors import InvalidInput

# PATH_MAX of Linux includes the terminating zero byte.
MAX_PATH_BYTES: Final = 4095
MAX_COMPONENTS: Final = 256
MAX_FOLDERS: Final = 100


def check_folder(folder: str | None, field: str = "cwd") -> None:
    """Check a folder that a client names; `field` is its place in the request.

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
