"""The folder that an agent works in, which must be below the workspace root."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from treadle.unattended.errors import InvalidWorkspaceCwd


@dataclass(frozen=True, slots=True)
class Workspace:
    """A permitted folder, by its real path."""

    cwd: Path
    root: Path | None = None

    @classmethod
    def guarded(cls, cwd: Path | str, root: Path | str | None = None) -> Workspace:
        """Resolve a folder and check that it is inside its root, and not the root itself.

        Raises:
            InvalidWorkspaceCwd: the folder is outside the root, is the root, or cannot be read.
        """
        lexical = Path(os.path.abspath(Path(cwd).expanduser()))  # noqa: PTH100 - keeps links unresolved
        real = _resolve(lexical)
        if root is None:
            return cls(real)
        lexical_root = Path(os.path.abspath(Path(root).expanduser()))  # noqa: PTH100
        real_root = _resolve(lexical_root)
        if real == real_root:
            raise InvalidWorkspaceCwd("workspace_root", str(cwd))
        if real_root not in real.parents:
            is_inside = lexical_root in lexical.parents or real_root in lexical.parents
            reason = "symlink_escape" if is_inside else "outside_workspace_root"
            raise InvalidWorkspaceCwd(reason, str(cwd))
        return cls(real, real_root)

    def check(self) -> None:
        """Check that the folder is still the permitted one.

        Raises:
            InvalidWorkspaceCwd: it is gone, or now leads elsewhere.
        """
        if _resolve(self.cwd) != self.cwd:
            raise InvalidWorkspaceCwd("symlink_escape", str(self.cwd))


def _resolve(path: Path) -> Path:
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InvalidWorkspaceCwd("path_unreadable", str(path)) from error
    if not real.is_dir() or not os.access(real, os.R_OK | os.X_OK):
        raise InvalidWorkspaceCwd("path_unreadable", str(path))
    return real
