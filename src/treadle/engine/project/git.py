"""Reads commit, branch and origin from a repository's files, without running git.

Paths are plain strings: this runs at the start of every thread, and pathlib would take longer
than the reading itself.
"""

from __future__ import annotations

import os
import re
from typing import Final

from treadle.protocol.base import GitInfo
from treadle.support.files.reading import read_file

_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ORIGIN: Final = '[remote "origin"]'
_MAX_BYTES: Final = 16 * 1024
_MAX_PACKED_BYTES: Final = 4 * 1024 * 1024


def read_git_info(cwd: str) -> GitInfo | None:
    """Return the commit, branch and origin; `None` outside a repository."""
    folder = _git_folder(cwd)
    head = _text(folder, "HEAD").strip() if folder else ""
    if not head:
        return None
    common = os.path.join(folder, _text(folder, "commondir").strip())  # noqa: PTH118 - see above
    ref = head.removeprefix("ref: ") if head.startswith("ref: ") else None
    sha = head if ref is None else _resolve(ref, folder, common)
    return GitInfo(
        branch=ref.removeprefix("refs/heads/") if ref is not None else None,
        origin_url=_origin(_text(common, "config")),
        sha=sha if _SHA.fullmatch(sha) else None,
    )


def _origin(config: str) -> str | None:
    """Line by line: one pattern for all of it takes minutes on a file of blank lines."""
    is_origin = False
    for line in map(str.strip, config.split("\n")):
        if line.startswith("["):
            is_origin = line == _ORIGIN
        elif is_origin:
            name, _, value = line.partition("=")
            if name.strip() == "url" and (url := value.strip()):
                return url
    return None


def _git_folder(cwd: str) -> str:
    """Return the nearest `.git` folder at or above `cwd`; empty if there is none."""
    above = cwd
    while True:
        if _text(above, ".git/HEAD"):
            return f"{above}/.git"
        # In a worktree or a submodule, `.git` is a file with the path of the folder.
        pointer = _text(above, ".git").strip()
        if pointer.startswith("gitdir: "):
            return os.path.join(above, pointer.removeprefix("gitdir: "))  # noqa: PTH118 - see above
        if above == (above := os.path.dirname(above)):  # noqa: PTH120 - see above
            return ""


def _resolve(ref: str, folder: str, common: str) -> str:
    for place in (folder, common):
        sha = _text(place, ref).strip()
        if sha:
            return sha
    packed = _text(common, "packed-refs", _MAX_PACKED_BYTES)
    match = re.search(rf"^(\S+) {re.escape(ref)}$", packed, re.MULTILINE)
    return match[1] if match else ""


def _text(folder: str, name: str, size: int = _MAX_BYTES) -> str:
    try:
        return read_file(f"{folder}/{name}", size).decode("utf-8", "replace")
    except OSError:
        return ""
