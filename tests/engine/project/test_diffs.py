"""Tests of the diff of a turn; formats are upstream's, probed on 0.163.0, unless said otherwise."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from treadle.engine.patch.effort import Effort
from treadle.engine.patch.files import carry_out, touched
from treadle.engine.patch.plan import plan, targets
from treadle.engine.patch.reading import read_file
from treadle.engine.patch.syntax import parse
from treadle.engine.project.diffs import MAX_SHOWN, TurnDiff

EMPTY = "0" * 40
ONE = "5626abf0f72e58d7a153368ba57db4c673c0e171"  # what git calls "one\n"
TWO = "f719efd430d52bcfc8566a43b2eb655688d38871"  # and "two\n"
BINARY = "5d983463ed9b1bcb008a040949025e83abf576d1"  # and two bytes that are not text


class Turn:
    """Patches one folder, one patch after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.diff = TurnDiff()

    def patch(self, *lines: str) -> str:
        """Apply a patch and give the diff of the turn."""
        text = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
        operations, folder = parse(text), str(self.folder)
        edits = plan(operations, folder, read_file, Effort())
        paths = touched(targets(operations, folder), Effort())
        self.diff.add(carry_out(edits, paths, Effort()))
        return self.diff.unified(str(self.folder))


@pytest.fixture
def turn(tmp_path: Path) -> Turn:
    """A turn in a folder with two files."""
    (tmp_path / "a").write_bytes(b"one\n")
    (tmp_path / "b").write_bytes(b"one\n")
    return Turn(tmp_path)


def update(name: str, old: str, new: str, move: str | None = None) -> list[str]:
    moves = [f"*** Move to: {move}"] if move else []
    return [f"*** Update File: {name}", *moves, f"-{old}", f"+{new}"]


def test_added_changed_and_deleted_files_are_reported_in_order_of_their_paths(turn: Turn) -> None:
    diff = turn.patch("*** Delete File: b", *update("a", "one", "two"), "*** Add File: 0", "+one")

    assert diff == (
        f"diff --git a/0 b/0\nnew file mode 100644\nindex {EMPTY}..{ONE}\n"
        "--- /dev/null\n+++ b/0\n@@ -0,0 +1 @@\n+one\n"
        f"diff --git a/a b/a\nindex {ONE}..{TWO}\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n"
        f"diff --git a/b b/b\ndeleted file mode 100644\nindex {ONE}..{EMPTY}\n"
        "--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
    )


def test_the_diff_compares_with_the_file_before_the_turn(turn: Turn) -> None:
    turn.patch(*update("a", "one", "1"))
    diff = turn.patch(*update("a", "1", "two"))

    assert diff == (
        f"diff --git a/a b/a\nindex {ONE}..{TWO}\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n"
    )


def test_a_reverted_edit_is_not_a_change(turn: Turn) -> None:
    turn.patch(*update("a", "one", "1"), "*** Add File: c", "+x")

    assert turn.patch(*update("a", "1", "one"), "*** Delete File: c") == ""


def test_only_a_changed_diff_is_reported(turn: Turn) -> None:
    cwd = str(turn.folder)
    turn.patch("*** Update File: a", " one")
    nothing = turn.diff.take_update(cwd)
    diff = turn.patch(*update("a", "one", "1"))
    first, second = turn.diff.take_update(cwd), turn.diff.take_update(cwd)
    turn.patch(*update("a", "1", "one"))

    assert [nothing, first, second, turn.diff.take_update(cwd)] == [None, diff, None, ""]


def test_a_moved_file_is_followed(turn: Turn) -> None:
    turn.patch(*update("a", "one", "1", move="c"))
    diff = turn.patch(*update("c", "1", "two", move="d"))

    assert diff == (
        f"diff --git a/a b/d\nindex {ONE}..{TWO}\n--- a/a\n+++ b/d\n@@ -1 +1 @@\n-one\n+two\n"
    )


def test_a_file_that_only_moved_is_reported(turn: Turn) -> None:
    """Ours: the reference is silent."""
    diff = turn.patch("*** Update File: a", "*** Move to: d/c", " one")

    assert diff == ("diff --git a/a b/d/c\nsimilarity index 100%\nrename from a\nrename to d/c\n")


def test_a_move_onto_another_file_is_a_deletion_and_a_change(turn: Turn) -> None:
    diff = turn.patch(*update("a", "one", "two", move="b"))

    assert diff == (
        f"diff --git a/a b/a\ndeleted file mode 100644\nindex {ONE}..{EMPTY}\n"
        "--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
        f"diff --git a/b b/b\nindex {ONE}..{TWO}\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-one\n+two\n"
    )


def test_a_moved_file_whose_place_is_taken_again_is_two_files(turn: Turn) -> None:
    turn.patch("*** Update File: a", "*** Move to: c", " one")
    diff = turn.patch("*** Add File: a", "+two")

    assert diff == (
        f"diff --git a/a b/a\nindex {ONE}..{TWO}\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n"
        f"diff --git a/c b/c\nnew file mode 100644\nindex {EMPTY}..{ONE}\n"
        "--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+one\n"
    )


def test_a_moved_file_that_is_deleted_was_deleted(turn: Turn) -> None:
    turn.patch(*update("a", "one", "1", move="c"))

    assert turn.patch("*** Delete File: c") == (
        f"diff --git a/a b/a\ndeleted file mode 100644\nindex {ONE}..{EMPTY}\n"
        "--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
    )


def test_binary_files_are_reported_as_different(turn: Turn) -> None:
    """Ours: the reference refuses to delete them and does not report that they were replaced."""
    for name in "ab":
        (turn.folder / name).write_bytes(b"\xff\0")
    diff = turn.patch("*** Delete File: a", "*** Add File: b", "+one")

    assert diff == (
        f"diff --git a/a b/a\ndeleted file mode 100644\nindex {BINARY}..{EMPTY}\n"
        "Binary files a/a and /dev/null differ\n"
        f"diff --git a/b b/b\nindex {BINARY}..{ONE}\nBinary files a/b and b/b differ\n"
    )


def test_a_file_that_is_too_large_to_show_is_reported_as_different(turn: Turn) -> None:
    """Ours: its lines would not fit a message; what changes in it would."""
    for name in "ab":
        (turn.folder / name).write_text("first\n" + "xxx\n" * (MAX_SHOWN // 4))
    diff = turn.patch("*** Delete File: a", "*** Update File: b", "-first", "+1")

    assert [line for line in diff.splitlines() if "index" not in line] == [
        "diff --git a/a b/a",
        "deleted file mode 100644",
        "Binary files a/a and /dev/null differ",
        "diff --git a/b b/b",
        "--- a/b",
        "+++ b/b",
        "@@ -1,4 +1,4 @@",
        *("-first", "+1", " xxx", " xxx", " xxx"),
    ]


def test_an_empty_file_has_no_hunks(turn: Turn) -> None:
    assert turn.patch("*** Add File: e") == (
        "diff --git a/e b/e\nnew file mode 100644\n"
        f"index {EMPTY}..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"
    )


def test_paths_are_relative_to_the_repository_and_absolute_outside_it(tmp_path: Path) -> None:
    cwd = tmp_path / "repository" / "deep"
    (cwd / ".git").mkdir(parents=True)  # empty, and so no repository
    (cwd.parent / ".git").write_text("gitdir: /elsewhere\n", "utf-8")
    diff = Turn(cwd).patch("*** Add File: a", "*** Add File: ../b", "*** Add File: ../../c")

    headers = [line for line in diff.splitlines() if line.startswith("diff")]
    out = tmp_path / "c"
    assert headers == [
        f"diff --git a/{out} b/{out}",
        "diff --git a/b b/b",
        "diff --git a/deep/a b/deep/a",
    ]


def test_git_accepts_the_diff_and_computes_the_same_hashes(turn: Turn) -> None:
    folder = turn.folder
    (folder / "c").write_bytes(b"x\n" * 50 + b"no end")
    run = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run([*run, "init", "-q"], cwd=folder, check=True)
    subprocess.run([*run, "add", "-A"], cwd=folder, check=True)
    subprocess.run([*run, "commit", "-qm", "x"], cwd=folder, check=True)
    turn.patch(*update("a", "one", "1"), "*** Delete File: b", "*** Add File: n", "+n")
    diff = turn.patch(*update("c", "no end", "end"), *update("a", "1", "2", move="m"))
    subprocess.run([*run, "add", "-A"], cwd=folder, check=True)
    tree = [*run, "write-tree"]
    after = subprocess.run(tree, cwd=folder, check=True, capture_output=True).stdout

    subprocess.run([*run, "reset", "-q", "--hard"], cwd=folder, check=True)
    apply = [*run, "apply", "--index", "-"]
    subprocess.run(apply, cwd=folder, check=True, input=diff.encode())

    assert subprocess.run(tree, cwd=folder, check=True, capture_output=True).stdout == after
