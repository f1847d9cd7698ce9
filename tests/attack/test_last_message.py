"""The file of `treadle exec -o`, which a command that still runs exchanges for a link."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from treadle.cli.exec.last_message import write_message
from treadle.sandbox import paths


@pytest.mark.parametrize("place", ["last", "sub"])
@pytest.mark.parametrize("when", [1, 2, 3, 4, 5, 6, 7, 8])
def test_no_link_is_followed_that_appears_for_a_moment(
    workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, place: str, when: int
) -> None:
    """Between any two looks at the path, a link takes the place of a name, and leaves it again."""
    (workspace / "sub").mkdir()
    victim = outside / "last"
    victim.write_text("mine")
    name = workspace / ("sub/last" if place == "sub" else "last")
    name.write_text("old")
    exchanged = name.parent if place == "sub" else name
    link, aside = workspace / "link", workspace / "aside"
    link.symlink_to(outside if place == "sub" else victim)
    calls = 0

    def exchange() -> None:
        nonlocal calls
        calls += 1
        if calls == when:
            exchanged.rename(aside)
            link.rename(exchanged)
        elif calls == when + 1:
            exchanged.rename(link)
            aside.rename(exchanged)

    def watched(original: Callable[..., object]) -> Callable[..., object]:
        def call(path: object, *rest: object, **more: object) -> object:
            if isinstance(path, int) or str(path).endswith(("last", "sub")):
                exchange()
            return original(path, *rest, **more)

        return call

    for function in ("open", "readlink", "fstat"):
        monkeypatch.setattr(os, function, watched(getattr(os, function)))
    with suppress(OSError):
        write_message("theirs", str(name), lambda _link: True)
    monkeypatch.undo()

    assert victim.read_text() == "mine"


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_an_open_descriptor_can_be_written(tmp_path: Path, kind: str) -> None:
    read, write = os.pipe()
    if kind == "file":
        os.close(write)
        write = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    write_message("text", f"/dev/fd/{write}", lambda _link: False)
    os.close(write)

    got = (tmp_path / "f").read_bytes() if kind == "file" else os.read(read, 10)
    os.close(read)
    assert got == b"text"


def test_links_of_the_user_are_followed(workspace: Path, outside: Path) -> None:
    (workspace / "last").symlink_to(outside / "last")

    write_message("text", str(workspace / "last"), lambda _link: False)

    assert (outside / "last").read_text() == "text"


def test_a_circle_of_links_is_refused(workspace: Path) -> None:
    (workspace / "last").symlink_to("last")

    with pytest.raises(OSError, match="link"):
        paths.resolve(str(workspace / "last"), lambda _link: True)
