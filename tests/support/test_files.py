"""Files that others put there are read, and nothing else is waited for."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from treadle.support.files import read_file


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/dev/fd").iterdir()}


def test_a_file_is_read_whole_or_in_part(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    assert (read_file(tmp_path / "a", 10), read_file(str(tmp_path / "link"), 2)) == (b"abc", b"ab")


def test_devices_hold_nothing() -> None:
    assert (read_file("/dev/null", 10), read_file("/dev/zero", 10)) == (b"", b"")


def test_what_is_no_file_is_an_error_and_leaves_nothing_open(short_folder: Path) -> None:
    os.mkfifo(short_folder / "pipe")
    (short_folder / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_folder / "socket"))
        before = open_descriptors()
        for name in ("pipe", "folder", "socket", "none"):
            with pytest.raises(OSError, match=name):
                read_file(short_folder / name, 10)
        assert open_descriptors() == before
