"""Projects: where one begins, whether the user trusts it, and what its files may set."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from treadle.config.file import ConfigError
from treadle.config.layers import Layer
from treadle.config.settings import ConfigValues, ProjectTable, Table
from treadle.protocol.config import ProjectConfigLayerSource
from treadle.support.files.reading import read_whole

Trust: TypeAlias = Literal["trusted", "untrusted"]

FOLDER: Final = ".codex"
_MAX_POINTER_BYTES: Final = 64 * 1024

# A repository that somebody sends must not say where prompts and keys go, nor what is run.
_NOT_FOR_PROJECTS: Final = frozenset(
    """
    apps_mcp_product_sku chatgpt_base_url experimental_realtime_webrtc_call_base_url
    experimental_realtime_ws_base_url model_provider model_providers notify openai_base_url otel
    profile profiles projects responses_api_metadata sandbox
    """.split()
)


class Planting(Protocol):
    """What sandboxed commands may have left behind."""

    def made(self, path: Path, folder: Path) -> bool:
        """Whether a command could have made or changed a file of a folder.

        What stands directly in a folder that commands can write counts as closed to them.
        """
        ...

    def led(self, path: Path) -> bool:
        """Whether a link on the way to a path may be a command's work."""
        ...


class Nothing:
    """No command has ever run."""

    def made(self, path: Path, folder: Path) -> bool:  # noqa: ARG002 - part of the protocol
        """Nothing was made."""
        return False

    def led(self, path: Path) -> bool:  # noqa: ARG002 - part of the protocol
        """No link was made."""
        return False


class Project:
    """The project around a folder, as the user's own settings see it."""

    def __init__(self, cwd: Path, settings: ConfigValues, planting: Planting | None = None) -> None:
        self.cwd = cwd
        self.root = _find_root(cwd, settings.project_root_markers)
        self._decisions: Mapping[str, ProjectTable] = settings.projects or {}
        self._planting = planting or Nothing()

    @property
    def trust(self) -> Trust | None:
        """What the user decided about the folder; null if nothing."""
        return self.trust_of(self.cwd)

    def trust_of(self, folder: Path) -> Trust | None:
        """What was decided about a folder of the project, or else about all of it."""
        if not self._decisions:
            return None
        for candidate in (folder, self.root, _main_worktree(self.root, self._planting)):
            decided = next(self._decided(candidate), None)
            if decided is not None:
                return decided
        return None

    def _decided(self, folder: Path) -> Iterator[Trust]:
        """What was decided about this very folder, by the name it is called and by its real one."""
        real = _real(folder)
        for path in dict.fromkeys((str(folder), real)):
            found = self._decisions.get(path)
            level = None if found is None else found.trust_level
            if level is None:
                continue
            # A name means what it led to when the user decided, not what a command made of it.
            if level == "trusted" and path != real and self._planting.led(folder):
                continue
            yield level

    def is_trusted_by_name(self, folder: Path) -> bool:
        """Whether the user trusts this very folder, and not only the project that it is in."""
        return "trusted" in self._decided(folder)

    def folders(self) -> list[Path]:
        """The folders from the root of the project down to the current one."""
        root, found = str(self.root), []
        for folder in _upwards(self.cwd):
            found.append(Path(folder))
            if folder == root:
                break
        return found[::-1]

    def layers(
        self,
        home: Path,
        read: Callable[[Path], Table],
    ) -> Iterable[tuple[Layer, list[str]]]:
        """Give each folder's layer, root first, with the keys in it that no project may set.

        A layer that a sandboxed command could have made or changed counts only if the user trusts
        its own folder: the settings of that are read-only for commands.
        """
        for folder in self.folders():
            dot_codex = folder / FOLDER
            # In a home folder that is itself a repository, `.codex` is the user's own layer.
            if not _is_there(dot_codex, stat.S_ISDIR) or _real(dot_codex) == _real(home):
                continue
            reason = self._why_ignored(folder, home)
            if reason is None and not self.is_trusted_by_name(folder):
                reason = _why_planted(folder, home, self._planting)
            try:
                table = read(dot_codex / "config.toml")
            except ConfigError:
                if reason is None:
                    raise
                table = {}
            refused = sorted(_NOT_FOR_PROJECTS & table.keys())
            allowed = {key: value for key, value in table.items() if key not in refused}
            source = ProjectConfigLayerSource(dot_codex_folder=str(dot_codex))
            yield Layer(source, allowed, reason), refused

    def _why_ignored(self, folder: Path, home: Path) -> str | None:
        match self.trust_of(folder):
            case "trusted":
                return None
            case "untrusted":
                return f"{self.root} is marked as untrusted, so its own configuration is ignored"
            case _:
                return (
                    f"{self.root} is not trusted yet; to use its own configuration, set "
                    f'projects."{self.root}".trust_level = "trusted" in {home / "config.toml"}'
                )


def _why_planted(folder: Path, home: Path, planting: Planting) -> str | None:
    """Why a folder's settings do not count although its project is trusted; null if they do."""
    dot_codex = folder / FOLDER
    rules = dot_codex / "rules"
    files = [dot_codex, dot_codex / "config.toml", rules, *_entries(rules)]
    # What a link leads to can change without the link.
    planted = [path for path in files if path.is_symlink() or planting.made(path, folder)]
    if not planted:
        return None
    return (
        f"{planted[0]} changed after sandboxed commands could write there, so it is ignored; to "
        f'use it, set projects."{folder}".trust_level = "trusted" in {home / "config.toml"}'
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _find_root(cwd: Path, markers: Iterable[str]) -> Path:
    """The nearest folder that holds a marker, or else the current one."""
    markers = list(markers)
    for folder in _upwards(cwd):
        if any(_marks(folder, marker) for marker in markers):
            return Path(folder)
    return cwd


def _upwards(folder: Path) -> Iterator[str]:
    """Give a folder and those above it, as text: pathlib builds each parent part by part."""
    path = str(folder)
    yield path
    while (parent := os.path.dirname(path)) != path:  # noqa: PTH120 - text, as said above
        yield parent
        path = parent


def _marks(folder: str, marker: str) -> bool:
    """Whether a folder holds a marker; a `.git` without contents, as sandboxes make it, is none."""
    place = os.path.join(folder, marker)  # noqa: PTH118 - text is faster, see _upwards
    if marker == ".git":
        return _is_there(place, stat.S_ISREG) or _is_there(f"{place}/HEAD")
    return _is_there(place)


def _main_worktree(root: Path, planting: Planting) -> Path:
    """The main checkout of a repository, for a linked worktree; else the root itself."""
    link = root / ".git"
    if not _is_there(link, stat.S_ISREG):
        return root
    try:
        target = read_whole(link, _MAX_POINTER_BYTES).decode().removeprefix("gitdir:").strip()
    except (OSError, UnicodeDecodeError):
        return root
    # A linked worktree points at <main>/.git/worktrees/<name>, which points back: a folder that
    # came from elsewhere can claim the first, but not that the trusted checkout knows it. Nor can
    # a command, to which the `.git` of a folder that it writes is closed.
    folder = Path(_real(root / target))
    if [part.name for part in folder.parents[:2]] != ["worktrees", ".git"]:
        return root
    try:
        back = Path(read_whole(folder / "gitdir", _MAX_POINTER_BYTES).decode().strip())
    except (OSError, UnicodeDecodeError):
        return root
    main = folder.parents[2]
    # git writes a path that is relative to its own folder if it is asked to.
    is_known = _real(folder / back) == _real(link)
    return main if is_known and not planting.made(folder / "gitdir", main) else root


def _is_there(path: Path | str, is_kind: Callable[[int], bool] = bool) -> bool:
    """Whether something is there for us to see; what we may not look at is not."""
    try:
        return is_kind(os.stat(path).st_mode)  # noqa: PTH116 - takes text as well
    except OSError:
        return False


def _real(path: Path) -> str:
    """The path without links; unlike pathlib's, this one takes a loop of links for a name."""
    return os.path.realpath(path)
