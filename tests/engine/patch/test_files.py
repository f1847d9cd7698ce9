"""Tests of carrying out edits: all or none, and nowhere else than was checked."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest

from treadle.engine.patch.effort import Effort
from treadle.engine.patch.files import Blob, Changed, EditFailed, carry_out, touched
from treadle.engine.patch.plan import FileEdit, plan, targets
from treadle.engine.patch.reading import read_file
from treadle.engine.patch.syntax import PatchError, parse


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def planned(folder: Path, *lines: str) -> tuple[list[FileEdit], list[tuple[str, str | None]]]:
    text = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    operations = parse(text)
    paths = touched(targets(operations, str(folder)), Effort())
    return plan(operations, str(folder), read_file, Effort()), paths


def apply(folder: Path, *lines: str) -> list[Changed]:
    edits, paths = planned(folder, *lines)
    return carry_out(edits, paths, Effort())


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; empty folders as well."""
    found: dict[str, bytes] = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = b"-> " + os.fsencode(path.readlink())
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
        elif not any(path.iterdir()):
            found[f"{path.relative_to(folder)}/"] = b""
    return found


def test_every_kind_of_edit_is_made_and_reported(folder: Path) -> None:
    for name in ("update", "move", "delete"):
        (folder / name).write_bytes(b"one\n")
    (folder / "move").chmod(0o755)

    made = apply(
        folder,
        "*** Update File: update",
        "-one",
        "+1",
        "*** Update File: move",
        "*** Move to: deep/er/moved",
        "-one",
        "+2",
        "*** Delete File: delete",
        "*** Add File: new",
        "+3",
    )

    assert tree(folder) == {"update": b"1\n", "deep/er/moved": b"2\n", "new": b"3\n"}
    one, tool = Blob(b"one\n"), Blob(b"one\n", 0o100755)
    assert made == [
        Changed(f"{folder}/update", one, Blob(b"1\n")),
        Changed(f"{folder}/deep/er/moved", None, Blob(b"2\n", 0o100755), f"{folder}/move"),
        Changed(f"{folder}/move", tool, None),
        Changed(f"{folder}/delete", one, None),
        Changed(f"{folder}/new", None, Blob(b"3\n")),
    ]


def test_a_file_keeps_its_mode(folder: Path) -> None:
    file = folder / "a"
    file.write_bytes(b"one\n")
    file.chmod(0o750)

    apply(folder, "*** Update File: a", "-one", "+1")

    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"1\n", 0o750)


def test_adding_and_moving_replace_what_is_there(folder: Path) -> None:
    """Upstream: neither is refused."""
    for name in "abc":
        (folder / name).write_bytes(b"one\n")

    made = apply(
        folder, "*** Add File: a", "+1", "*** Update File: b", "*** Move to: c", "-one", "+2"
    )

    assert tree(folder) == {"a": b"1\n", "c": b"2\n"}
    assert made[0] == Changed(f"{folder}/a", Blob(b"one\n"), Blob(b"1\n"))


def test_a_link_is_written_through_and_deleted_as_itself(folder: Path) -> None:
    (folder / "file").write_bytes(b"one\n")
    (folder / "other").write_bytes(b"one\n")
    (folder / "link").symlink_to("file")
    (folder / "loose").symlink_to("other")

    made = apply(folder, "*** Update File: link", "-one", "+1", "*** Delete File: loose")

    assert tree(folder) == {"file": b"1\n", "link": b"-> file", "other": b"one\n"}
    assert made == [
        Changed(f"{folder}/file", Blob(b"one\n"), Blob(b"1\n")),
        Changed(f"{folder}/loose", Blob(b"other", 0o120000), None),
    ]


@pytest.mark.parametrize(
    ("last", "failure"),
    [
        (["*** Add File: folder", "+x"], "Failed to write file {}/folder"),
        (["*** Add File: b/under/file", "+x"], "Failed to write file {}/b/under/file"),
    ],
)
def test_all_edits_are_made_or_none(folder: Path, last: list[str], failure: str) -> None:
    """Ours: the reference leaves the edits before it."""
    (folder / "folder").mkdir()
    for name in "abc":
        (folder / name).write_bytes(b"one\n")
    before = tree(folder)

    with pytest.raises(EditFailed) as caught:
        apply(
            folder,
            *("*** Add File: new/n", "+x", "*** Update File: a", "-one", "+1"),
            *("*** Delete File: c", *last),
        )

    assert (str(caught.value), tree(folder)) == (failure.format(folder), before)


def test_a_partial_failure_is_undone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcd":
        (folder / name).write_bytes(b"one\n")
    before = tree(folder)
    unlink = os.unlink

    def failing_unlink(name: str, **options: int) -> None:
        if name == "d":
            raise OSError("the disk is on fire")
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", failing_unlink)
    with pytest.raises(EditFailed) as caught:
        apply(
            folder,
            *("*** Update File: a", "-one", "+1", "*** Add File: deep/new", "+x"),
            *("*** Delete File: b", "*** Update File: c", "*** Move to: moved", "-one", "+2"),
            *("*** Delete File: d",),
        )

    assert (str(caught.value), tree(folder)) == (f"Failed to delete file {folder}/d", before)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_file_that_cannot_be_replaced_is_overwritten_or_left_unchanged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """A file that is mounted by itself is such a one."""
    for name in "ab":
        (folder / name).write_bytes(b"one, and more\n")
    before, number = tree(folder), (folder / "a").stat().st_ino

    def busy(*_args: object, **_options: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(os, "replace", busy)
    last = ["*** Delete File: b"] if is_whole else ["*** Add File: new", "+x"]
    with nullcontext() if is_whole else pytest.raises(EditFailed):
        apply(folder, "*** Update File: a", "-one, and more", "+1", *last)

    assert tree(folder) == ({"a": b"1\n"} if is_whole else before)
    assert (folder / "a").stat().st_ino == number


def test_a_file_system_without_hard_links_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_args: object, **_options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", no_link)
    for name in "ab":
        (folder / name).write_bytes(b"one\n")

    apply(folder, "*** Delete File: a", "*** Update File: b", "-one", "+1")

    assert tree(folder) == {"b": b"1\n"}


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_link_created_after_the_check_is_not_followed(folder: Path, what: str) -> None:
    outside, inside = folder / "outside", folder / "inside"
    outside.mkdir()
    (inside / "d").mkdir(parents=True)
    for place in (outside, inside / "d"):
        (place / "a").write_bytes(b"one\n")
    edits, paths = planned(inside, "*** Update File: d/a", "-one", "+1")
    (inside / "d" / "a").unlink()
    if what == "folder":
        (inside / "d").rmdir()
        (inside / "d").symlink_to(outside)
    else:
        (inside / "d" / "a").symlink_to(outside / "a")

    with pytest.raises(EditFailed):
        carry_out(edits, paths, Effort())

    assert tree(outside) == {"a": b"one\n"}


@pytest.mark.parametrize(
    "lines",
    [
        ["*** Update File: a", "-one", "+1", "*** Update File: alias", "-two", "+2"],
        ["*** Update File: a", "-one", "+1", "*** Add File: alias", "+2"],
        ["*** Update File: a", "-one", "+1", "*** Delete File: folder/a"],
        ["*** Update File: a", "*** Move to: alias", "-one", "+1"],
    ],
)
def test_two_names_of_one_file_are_rejected(folder: Path, lines: list[str]) -> None:
    (folder / "a").write_bytes(b"one\ntwo\n")
    (folder / "alias").symlink_to("a")
    (folder / "folder").symlink_to(folder)
    before = tree(folder)

    with pytest.raises(PatchError, match=f"multiple operations target {folder}/a"):
        apply(folder, *lines)

    assert tree(folder) == before


def test_a_circular_link_is_not_a_file(folder: Path) -> None:
    """Before Python 3.13 pathlib raises a different error for it."""
    (folder / "circle").symlink_to("circle")

    with pytest.raises(PatchError, match="circle leads through too many links"):
        apply(folder, "*** Add File: circle", "+x")


def test_only_regular_files_are_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe")

    for path in (folder / "pipe", folder):
        with pytest.raises(OSError, match=f"path `{path}` is not a file"):
            read_file(str(path), 10, Effort())
