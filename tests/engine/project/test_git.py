"""`read_git_info` reads commit, branch and origin as git would, without running it.

The passwords of an origin are left out.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from treadle.engine.project.git import read_git_info
from treadle.protocol.base import GitInfo

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, *IDENTITY, "commit", "-q", "--allow-empty", "-m", "x")
    return folder


def test_commit_branch_and_origin_are_found_from_a_folder_inside(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "git@example.com:a/b.git")
    inside = repository / "a" / "b"
    inside.mkdir(parents=True)

    assert read_git_info(str(inside)) == GitInfo(
        branch="main",
        origin_url="git@example.com:a/b.git",
        sha=git(repository, "rev-parse", "HEAD"),
    )


def test_packed_refs_are_read(repository: Path) -> None:
    git(repository, "pack-refs", "--all")
    sha = git(repository, "rev-parse", "HEAD")

    assert read_git_info(str(repository)) == GitInfo(branch="main", sha=sha)


def test_only_a_line_of_a_commit_and_the_branch_is_a_packed_ref(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    sha = "0" * 39 + "1"
    lines = [
        "# pack-refs with: peeled refs/heads/main",
        " refs/heads/main",
        f"{sha} refs/heads/main2",
        f"{sha} refs/heads/main",
        "^" + "2" * 40,
    ]
    (tmp_path / ".git" / "packed-refs").write_text("\n".join(lines))

    assert read_git_info(str(tmp_path)) == GitInfo(branch="main", sha=sha)


def test_a_detached_head_has_no_branch(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")

    assert read_git_info(str(repository)) == GitInfo(sha=git(repository, "rev-parse", "HEAD"))


def test_a_worktree_has_its_own_branch(repository: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", "-q", "-b", "side/one", str(tree))

    assert read_git_info(str(tree)) == GitInfo(
        branch="side/one", sha=git(repository, "rev-parse", "HEAD")
    )


def test_a_repository_without_a_commit_has_a_branch_only(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")

    assert read_git_info(str(tmp_path)) == GitInfo(branch="main")


def test_outside_a_repository_nothing_is_read(tmp_path: Path) -> None:
    assert read_git_info(str(tmp_path)) is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("config", "url"),
    [
        ('[remote "origin"]\n' + "\n" * 16_000, None),
        ('[remote "origin"]\n' * 900, None),
        ('[remote "origin"]\n\turl = a\n\turl = b\n', "a"),
        ('[remote "other"]\nurl = a\n[remote "origin"]\n\n# url = c\nurl=b\n', "b"),
        ('[remote "origin"]\n[core]\nurl = a\n', None),
    ],
    ids=["blank", "heads", "two", "other", "elsewhere"],
)
def test_a_configuration_of_any_kind_is_read_in_time(
    tmp_path: Path, config: str, url: str | None
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "config").write_text(config)

    assert read_git_info(str(tmp_path)) == GitInfo(branch="main", origin_url=url)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://user:pass@example.com:8443/a/b.git", "https://example.com:8443/a/b.git"),
        ("https://token@example.com/a@b.git", "https://example.com/a@b.git"),
        ("HTTP://a:b@c@example.com", "HTTP://example.com"),
        ("ssh://git:secret@example.com/a", "ssh://git@example.com/a"),
        ("ssh://git@example.com/a", "ssh://git@example.com/a"),
        ("git@example.com:a/b.git", "git@example.com:a/b.git"),
        ("https://example.com/a?b=@c", "https://example.com/a?b=@c"),
        ("/folder/with@sign", "/folder/with@sign"),
    ],
)
def test_the_origin_has_no_password(repository: Path, url: str, origin: str) -> None:
    """Ours: the origin is stored with each thread. The reference stores passwords too."""
    git(repository, "remote", "add", "origin", url)
    info = read_git_info(str(repository))
    assert info is not None
    assert info.origin_url == origin
