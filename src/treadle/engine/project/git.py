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
    """Return the commit, branch and origin; `None` outside a repository.

    For use in worker threads: the list of packed branches may be large.
    """
    folder, head = _head(cwd)
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


def is_in_repository(cwd: str) -> bool:
    """Whether `read_git_info` returns something; reads little."""
    return bool(_head(cwd)[1])


def _head(cwd: str) -> tuple[str, str]:
    folder = _git_folder(cwd)
    return folder, _text(folder, "HEAD").strip() if folder else ""


def _origin(config: str) -> str | None:
    """Line by line: one pattern for all of it takes minutes on a file of blank lines."""
    is_origin = False
    for line in map(str.strip, config.split("\n")):
        if line.startswith("["):
            is_origin = line == _ORIGIN
        elif is_origin:
            name, _, value = line.partition("=")
            if name.strip() == "url" and (url := value.strip()):
                return _without_login(url)
    return None


def _without_login(url: str) -> str:
    """Remove what grants access: the origin is stored with threads and sent to clients.

    The user name remains only where it is part of the address, as in `ssh://git@host/path`.
    """
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, at, host = authority.rpartition("@")
    if not at:
        return url
    user = "" if scheme.lower() in ("http", "https") else login.partition(":")[0]
    return f"{scheme}{separator}{user}{at if user else ''}{host}{slash}{path}"


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
    return _packed(_bytes(common, "packed-refs", _MAX_PACKED_BYTES), ref)


def _packed(lines: bytes, ref: str) -> str:
    """Return the commit of a packed branch.

    By `find` rather than a pattern, which holds the interpreter for tens of milliseconds.
    """
    lines, name, at = b"\n%b\n" % lines, f" {ref}\n".encode(), 0
    while (at := lines.find(name, at)) >= 0:
        sha = lines[lines.rfind(b"\n", 0, at) + 1 : at]
        if len(sha.split()) == 1:
            return sha.decode("utf-8", "replace")
        at += len(name) - 1
    return ""


def _text(folder: str, name: str) -> str:
    return _bytes(folder, name, _MAX_BYTES).decode("utf-8", "replace")


def _bytes(folder: str, name: str, size: int) -> bytes:
    try:
        return read_file(f"{folder}/{name}", size)
    except OSError:
        return b""
