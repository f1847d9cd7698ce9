"""What a server has put on the disk by the time of each of its answers, and nothing else.

A library that is preloaded into the server records each sync. `Recording.disk_after` then makes
the tree that a power cut would leave: a file has the content of its last sync, and a folder the
names that it had at its own last sync. What was not synced is not there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from treadle.protocol.base import JsonValue

SOURCE = Path(__file__).with_name("power_cut.c")


def compile_recorder(folder: Path) -> Path:
    """Compile the library, or skip the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    library = folder / "power_cut.so"
    words = [compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    subprocess.run(words, check=True)
    return library


@dataclass(slots=True)
class _Node:
    """A file or a folder as it is on the disk."""

    content: bytes = b""
    names: dict[str, int] | None = None


class Recording:
    """The syncs and the answers of one server."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._root = root
        self._before = dict(_tree(root))

    def environment(self, library: Path) -> dict[str, str]:
        """Return the variables that have a process recorded."""
        return {"LD_PRELOAD": str(library), "POWER_CUT_LOG": str(self.folder)}

    def disk_after(self, is_answer: Callable[[JsonValue], bool], to: Path) -> Path:
        """Make the tree that a power cut leaves right after an answer, or a notification."""
        nodes = dict(self._before)
        for kind, inode, content in self._log():
            if kind == "F":
                nodes[inode] = _Node(content)
            elif kind == "D":
                nodes[inode] = _Node(names=_names(content))
            elif any(is_answer(json.loads(line)) for line in content.splitlines()):
                self._build(nodes, self._root.stat().st_ino, to)
                return to
        raise AssertionError("the server has not said that")

    def _log(self) -> Iterator[tuple[str, int, bytes]]:
        for line in (self.folder / "log").read_text().splitlines():
            kind, inode, copy = line.split()
            yield kind, int(inode), (self.folder / copy).read_bytes()

    def _build(self, nodes: dict[int, _Node], inode: int, to: Path) -> None:
        node = nodes.get(inode, _Node())
        if node.names is None:
            to.write_bytes(node.content)
            return
        to.mkdir()
        for name, child in node.names.items():
            # A name that was synced before what it means: a folder or a file without content.
            if child in nodes:
                self._build(nodes, child, to / name)


def _tree(folder: Path) -> Iterator[tuple[int, _Node]]:
    names = {path.name: path.lstat().st_ino for path in folder.iterdir()}
    yield folder.stat().st_ino, _Node(names=names)
    for path in folder.iterdir():
        if path.is_dir():
            yield from _tree(path)
        elif path.is_file():
            yield path.stat().st_ino, _Node(path.read_bytes())


def _names(content: bytes) -> dict[str, int]:
    pairs = [line.partition(b" ") for line in content.splitlines()]
    found = {os.fsdecode(name): int(inode) for inode, _, name in pairs}
    return {name: inode for name, inode in found.items() if name not in (".", "..")}
