"""The folder an agent works in: it must be one below the root that holds all of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from treadle.unattended.errors import InvalidWorkspaceCwd


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder that was found to be allowed, by its real path."""

    cwd: Path
    root: Path | None = None

    @classmethod
    def guarded(cls, cwd: Path | str, root: Path | str | None = None) -> Workspace:
        """Resolve a folder and see that it is inside its root, and not the root itself.

        Raises:
            InvalidWorkspaceCwd: it is not, or it cannot be read.
        """
        said = Path(os.path.abspath(Path(cwd).expanduser()))  # noqa: PTH100 - without links resolved
        real = _resolve(said)
        if root is None:
            return cls(real)
        said_root = Path(os.path.abspath(Path(root).expanduser()))  # noqa: PTH100
        real_root = _resolve(said_root)
        if real == real_root:
            raise InvalidWorkspaceCwd("workspace_root", str(cwd))
        if real_root not in real.parents:
            is_inside = said_root in said.parents or real_root in said.parents
            reason = "symlink_escape" if is_inside else "outside_workspace_root"
            raise InvalidWorkspaceCwd(reason, str(cwd))
        return cls(real, real_root)

    def check(self) -> None:
        """See that the folder is still the one that was allowed.

        Raises:
            InvalidWorkspaceCwd: it is gone, or leads elsewhere by now.
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
