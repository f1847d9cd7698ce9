"""Limits on roots, the paths that a policy or a grant opens: each becomes arguments of a mount.

Each path is also examined together with all its parents, so its depth decides how much work it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_ROOTS: Final = 100
"""Maximum number of paths that one policy or grant opens for reading, and the same for writing."""
# PATH_MAX of Linux includes the terminating zero byte.
MAX_ROOT_BYTES: Final = 4095
MAX_ROOT_COMPONENTS: Final = 256


def roots_fault(paths: Sequence[str], field: str) -> str | None:
    """Return why a list of paths is refused, or `None` if it is within the limits."""
    if len(paths) > MAX_ROOTS:
        return f"{field} must have at most {MAX_ROOTS} entries, not {len(paths)}"
    for at, path in enumerate(paths):
        if "\0" in path:
            return f"{field}[{at}] must not contain a NUL character"
        size, depth = len(path.encode("utf-8", "surrogatepass")), path.count("/")
        if size > MAX_ROOT_BYTES:
            return f"{field}[{at}] must have at most {MAX_ROOT_BYTES} bytes, not {size}"
        if depth > MAX_ROOT_COMPONENTS:
            return f"{field}[{at}] must have at most {MAX_ROOT_COMPONENTS} components, not {depth}"
    return None
