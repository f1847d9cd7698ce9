"""AGENTS.md files: a project's instructions to agents, from the repository root to the folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from treadle.sandbox.reading import read_for_model
from treadle.support.files.kinds import exists, is_file
from treadle.support.files.reading import read_file

MAX_BYTES: Final = 32 * 1024
NAMES: Final = ("AGENTS.override.md", "AGENTS.md")
_SEPARATOR: Final = "\n\n--- project-doc ---\n\n"


class ProjectDocs(NamedTuple):
    """The text, outermost file first, and the files it came from."""

    text: str
    sources: list[str]


def read_project_docs(
    cwd: Path,
    *,
    may_read: Callable[[str], bool],
    home: Path | None = None,
    fallbacks: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
) -> ProjectDocs:
    """Read the user's own file and one per folder, up to `max_bytes` in total.

    Of the project's files, only those that commands may read: any of them may be a link.
    """
    parts: list[str] = []
    sources: list[str] = []
    left = max_bytes
    for path in _files(cwd, home, [*NAMES, *fallbacks]):
        try:
            if path.parent == home:
                data = read_file(path, left)
            else:
                data, _ = read_for_model(str(path), left, may_read)
        except OSError:
            continue
        text = data.decode("utf-8", "replace")
        if not text.strip() or left <= 0:
            continue
        left -= len(text.encode())
        parts.append(text)
        sources.append(str(path))
    return ProjectDocs(_SEPARATOR.join(parts), sources)


def repository_root(cwd: Path) -> Path | None:
    """Return the nearest folder, at or above `cwd`, that is a repository."""
    return next((folder for folder in (cwd, *cwd.parents) if is_repository(folder)), None)


def is_repository(folder: Path) -> bool:
    """Whether a folder is the root of a git repository.

    In a worktree `.git` is a file. An empty `.git` folder does not count: sandboxes create one
    while a command runs, so that the command cannot create a repository.
    """
    git = folder / ".git"
    return is_file(git) or exists(git / "HEAD")


def _files(cwd: Path, home: Path | None, names: Sequence[str]) -> Iterator[Path]:
    root = repository_root(cwd)
    folders = [cwd]
    if root is not None:
        folders = [f for f in (*reversed(cwd.parents), cwd) if f == root or root in f.parents]
    for folder in ([home] if home is not None else []) + folders:
        first = next((folder / name for name in names if is_file(folder / name)), None)
        if first is not None:
            yield first
