"""Projects: their root, the user's trust in them and the settings that their files may contain."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from treadle.config.file import ConfigError
from treadle.config.layers import Layer
from treadle.config.settings import ConfigValues, ProjectTable, Table
from treadle.protocol.config import ProjectConfigLayerSource
from treadle.support.files.links import follow
from treadle.support.files.reading import read_whole

Trust: TypeAlias = Literal["trusted", "untrusted"]

FOLDER: Final = ".codex"
MAX_RULES_OF_FOLDER: Final = 100
"""How many files the `rules` of a folder may have that is trusted only with its project."""

_MAX_POINTER_BYTES: Final = 64 * 1024

# A repository from elsewhere must not decide where prompts and keys go or what is run.
_NOT_FOR_PROJECTS: Final = frozenset(
    """
    apps_mcp_product_sku chatgpt_base_url experimental_realtime_webrtc_call_base_url
    experimental_realtime_ws_base_url model_provider model_providers notify openai_base_url otel
    profile profiles projects responses_api_metadata sandbox
    """.split()
)


class Planting(Protocol):
    """Judges which files and links sandboxed commands may have made."""

    def made(self, path: Path, folder: Path) -> bool:
        """Return whether a command could have created or changed a file of a folder.

        An entry directly in a folder that commands can write counts as closed to them.
        """
        ...

    def led(self, path: Path) -> bool:
        """Return whether a command may have made a link on the way to a path."""
        ...


class Nothing:
    """The judgement where no command has run."""

    def made(self, path: Path, folder: Path) -> bool:  # noqa: ARG002 - part of the protocol
        """Return false."""
        return False

    def led(self, path: Path) -> bool:  # noqa: ARG002 - part of the protocol
        """Return false."""
        return False


class Project:
    """The project around a folder, according to the user's settings."""

    def __init__(self, cwd: Path, settings: ConfigValues, planting: Planting | None = None) -> None:
        self.cwd = cwd
        self.root = _find_root(cwd, settings.project_root_markers)
        self._decisions: Mapping[str, ProjectTable] = settings.projects or {}
        self._planting = planting or Nothing()

    @property
    def trust(self) -> Trust | None:
        """The user's trust in the folder, or `None` if undecided."""
        return self.trust_of(self.cwd)

    def trust_of(self, folder: Path) -> Trust | None:
        """Return the user's trust in a folder of the project, or else in the project."""
        if not self._decisions:
            return None
        for candidate in (folder, self.root, _main_worktree(self.root, self._planting)):
            decided = next(self._decisions_for(candidate), None)
            if decided is not None:
                return decided
        return None

    def _decisions_for(self, folder: Path) -> Iterator[Trust]:
        """Yield the decisions about exactly this folder, under its given and its real name."""
        real = _real(folder)
        for path in dict.fromkeys((str(folder), real)):
            decision = self._decisions.get(path)
            level = None if decision is None else decision.trust_level
            if level is None:
                continue
            # A name means what it led to when the user decided, not where a command redirected it.
            if level == "trusted" and path != real and self._planting.led(folder):
                continue
            yield level

    def is_trusted_by_name(self, folder: Path) -> bool:
        """Return whether the user trusts this folder itself, not only its project."""
        return "trusted" in self._decisions_for(folder)

    def folders(self) -> list[Path]:
        """Return the folders from the project's root down to the current one."""
        root, folders = str(self.root), []
        for folder in _upwards(self.cwd):
            folders.append(Path(folder))
            if folder == root:
                break
        return folders[::-1]

    def layers(
        self,
        home: Path,
        read: Callable[[Path], Table],
        *,
        reads_ignored: bool = False,
    ) -> Iterable[tuple[Layer, list[str]]]:
        """Yield each folder's layer, root first, with the keys that a project may not set.

        A layer that a sandboxed command could have made or changed counts only if the user trusts
        its own folder: commands cannot write the settings of a folder trusted by name. The file of
        an ignored layer is not even parsed, unless `reads_ignored`: clients can see its content.
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
                is_read = reason is None or reads_ignored
                table = read(dot_codex / "config.toml") if is_read else {}
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
    """Return why a folder of a trusted project is ignored, or `None` if it is not."""
    dot_codex = folder / FOLDER
    rules = dot_codex / "rules"
    remedy = (
        f"so it is ignored; to use it, set "
        f'projects."{folder}".trust_level = "trusted" in {home / "config.toml"}'
    )

    def is_planted(path: Path) -> bool:
        # The target of a link can change without the link. What is missing changes its folder.
        return path.is_symlink() or (os.path.lexists(path) and planting.made(path, folder))

    # In this order, and the folder again at last: whatever is added or removed changes its folder.
    files = (dot_codex, dot_codex / "config.toml", dot_codex / "hooks.json", rules)
    planted = next(filter(is_planted, files), None)
    entries = [] if planted is not None else _entries(rules)
    if len(entries) > MAX_RULES_OF_FOLDER:
        return f"{rules} has more than {MAX_RULES_OF_FOLDER} entries, {remedy}"
    planted = planted or next(filter(is_planted, (*entries, rules, dot_codex)), None)
    if planted is None:
        return None
    return f"{planted} changed after sandboxed commands could write there, {remedy}"


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder, or some of them if there are too many."""
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in islice(entries, MAX_RULES_OF_FOLDER + 1))
    except OSError:
        return []


def _find_root(cwd: Path, markers: Iterable[str]) -> Path:
    """Return the nearest folder that holds a marker, or else the current one."""
    markers = list(markers)
    for folder in _upwards(cwd):
        if any(_marks(folder, marker) for marker in markers):
            return Path(folder)
    return cwd


def _upwards(folder: Path) -> Iterator[str]:
    """Yield a folder and its parents as text: pathlib builds each parent part by part."""
    path = str(folder)
    yield path
    while (parent := os.path.dirname(path)) != path:  # noqa: PTH120 - text, see above
        yield parent
        path = parent


def _marks(folder: str, marker: str) -> bool:
    """Return whether a folder holds a marker; an empty `.git` made by a sandbox does not count."""
    place = os.path.join(folder, marker)  # noqa: PTH118 - text is faster, see _upwards
    if marker == ".git":
        return _is_there(place, stat.S_ISREG) or _is_there(f"{place}/HEAD")
    return _is_there(place)


def _main_worktree(root: Path, planting: Planting) -> Path:
    """Return the main checkout for a linked worktree, else the root itself."""
    link = root / ".git"
    if not _is_there(link, stat.S_ISREG):
        return root
    try:
        target = read_whole(link, _MAX_POINTER_BYTES).decode().removeprefix("gitdir:").strip()
    except (OSError, UnicodeDecodeError):
        return root
    # A linked worktree points at <main>/.git/worktrees/<name>, which points back. A folder from
    # elsewhere can fake the first pointer but not the one in the trusted checkout; nor can a
    # command, which cannot write the `.git` of its folder.
    folder = Path(_real(root / target))
    if [part.name for part in folder.parents[:2]] != ["worktrees", ".git"]:
        return root
    try:
        back = Path(read_whole(folder / "gitdir", _MAX_POINTER_BYTES).decode().strip())
    except (OSError, UnicodeDecodeError):
        return root
    main = folder.parents[2]
    # git can write a path relative to its own folder.
    is_known = _real(folder / back) == _real(link)
    return main if is_known and not planting.made(folder / "gitdir", main) else root


def _is_there(path: Path | str, is_kind: Callable[[int], bool] = bool) -> bool:
    """Return whether a path exists and is accessible."""
    try:
        return is_kind(os.stat(path).st_mode)  # noqa: PTH116 - takes text as well
    except (OSError, ValueError):  # ValueError: no path can contain this name
        return False


def _real(path: Path) -> str:
    """Return the path without links; unlike pathlib's, this one accepts a loop of links."""
    return follow(str(path)).place
