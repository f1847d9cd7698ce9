"""Files from other programs are read; special files neither block nor leak."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from treadle.support.files.reading import read_file
from treadle.support.files.writing import replace_file


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/dev/fd").iterdir()}


def test_a_file_is_read_whole_or_in_part(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    assert (read_file(tmp_path / "a", 10), read_file(str(tmp_path / "link"), 2)) == (b"abc", b"ab")


def test_devices_read_as_empty() -> None:
    assert (read_file("/dev/null", 10), read_file("/dev/zero", 10)) == (b"", b"")


def test_anything_but_a_regular_file_is_an_error_and_leaves_nothing_open(
    short_folder: Path,
) -> None:
    os.mkfifo(short_folder / "pipe")
    (short_folder / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_folder / "socket"))
        before = open_descriptors()
        for name in ("pipe", "folder", "socket", "none"):
            with pytest.raises(OSError, match=name):
                read_file(short_folder / name, 10)
        assert open_descriptors() == before


def test_a_replacement_is_synced_before_the_rename_and_then_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def spy_sync(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def spy_replace(path: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", spy_sync)
    monkeypatch.setattr(Path, "replace", spy_replace)
    path = tmp_path / "new" / "newer" / "file"
    replace_file(path, b"content")

    assert calls == ["file", "rename", "folder", "folder", "folder"]
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"content", 0o600)
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_file_that_cannot_be_replaced_stays_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "file"
    replace_file(path, b"old")

    def fails(_descriptor: int) -> None:
        raise OSError(errno.EIO, "")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="5"):
        replace_file(path, b"new")

    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]
