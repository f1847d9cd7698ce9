"""Copies of files with holes or without an end, and copies whose client has left."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from tests.harness.scripted import client_of, playing
from treadle.protocol.base import JsonValue
from treadle.server.files import copying
from treadle.support.files import writing

MIB = 1024 * 1024


def copy(source: Path | str, destination: Path) -> JsonValue:
    return {"sourcePath": str(source), "destinationPath": str(destination), "recursive": True}


async def test_a_copy_has_the_holes_of_its_source(home: Path, tmp_path: Path) -> None:
    """Ours: a file of 4 TiB without content filled the disk."""
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        for at in (16 * MIB, 48 * MIB):
            file.seek(at)
            file.write(b"data" * 1000)
        file.truncate(64 * MIB)
    async with playing(home, []) as server, client_of(server) as client:
        await client.request("fs/copy", copy(source, target))

    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks * 512 < MIB


@pytest.mark.skipif(sys.platform != "linux", reason="a file of Linux")
async def test_a_file_without_size_or_end_is_not_copied(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "MAX_UNSIZED", MIB)
    async with playing(home, []) as server, client_of(server) as client:
        error = await client.refusal("fs/copy", copy("/proc/self/pagemap", tmp_path / "target"))
        await client.request("fs/copy", copy("/proc/self/status", tmp_path / "status"))

    assert error.data == {"kind": "io", "errno": "EFBIG"}
    assert not (tmp_path / "target").exists()
    assert (tmp_path / "status").read_text().startswith("Name:")


async def test_a_copy_ends_when_its_client_leaves(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: copies went on, while the client connected again and started others."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "file").write_text("content")
    begun, left, over = threading.Event(), threading.Event(), threading.Event()

    def waiting(
        path: Path, fill: writing.Fill, mode: int | None = None, *, folder: int | None = None
    ) -> None:
        begun.set()
        left.wait(10)
        try:
            writing.fill_file(path, fill, mode, folder=folder)
        finally:
            over.set()

    monkeypatch.setattr(copying, "fill_file", waiting)
    async with playing(home, []) as server:
        async with client_of(server) as client:
            request = {"id": "copy", "method": "fs/copy", "params": copy(source, target)}
            await client.peer.send(request)
            assert await asyncio.to_thread(begun.wait, 10)
        left.set()
        assert await asyncio.to_thread(over.wait, 10)

    assert list(target.iterdir()) == []
