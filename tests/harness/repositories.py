"""Git repositories to work in."""

from __future__ import annotations

import subprocess
from pathlib import Path

_IDENTITY = ("-c", "user.name=author", "-c", "user.email=author@example.com")


def git(folder: Path, *arguments: str) -> str:
    """Run git and give what it prints."""
    done = subprocess.run(
        ["git", *_IDENTITY, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(folder: Path, name: str, text: str) -> str:
    """Commit a file and give the commit."""
    (folder / name).write_text(text, "utf-8")
    git(folder, "add", name)
    git(folder, "commit", "--quiet", "-m", f"change {name}")
    return git(folder, "rev-parse", "HEAD")


def repository(folder: Path) -> Path:
    """A repository on the branch `main` with one commit."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "a.txt", "one\n")
    return folder
