"""A folder to work in through `fs/*`, and how requests about it are refused."""

from __future__ import annotations

import os
from pathlib import Path

from tests.harness.threads import Client
from treadle.protocol.base import JsonValue

Refusal = tuple[JsonValue, ...]

NO_SUCH_FILE = (-32603, "No such file or directory (os error 2)", "io", "ENOENT")
EXISTS = (-32603, "File exists (os error 17)", "io", "EEXIST")
IS_A_DIRECTORY = (-32603, "Is a directory (os error 21)", "io", "EISDIR")
NOT_A_DIRECTORY = (-32603, "Not a directory (os error 20)", "io", "ENOTDIR")


def furnish(root: Path) -> Path:
    """Fill a new folder with files, links and other things."""
    (root / "d" / "e").mkdir(parents=True)
    (root / "f").write_text("hello")
    (root / "d" / "g").write_text("g")
    (root / "d" / "g").chmod(0o640)
    (root / "d" / "e" / "h").write_text("h")
    (root / "d" / "up").symlink_to("../f")
    (root / "link").symlink_to("f")
    (root / "folder-link").symlink_to("d")
    (root / "nowhere").symlink_to("missing")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    return root


async def refused(client: Client, method: str, **params: JsonValue) -> Refusal:
    """How a request is refused: code, message and kind, and the error of the system if any."""
    error = await client.refusal(f"fs/{method}", params)
    system = [error.data["errno"]] if "errno" in error.data else []
    return (error.code, error.message, error.kind, *system)


def tree(folder: Path) -> dict[str, str]:
    """What a folder holds: the text of files, where links lead, and nothing for folders."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = path.read_text() if path.is_file() else ""
    return found
