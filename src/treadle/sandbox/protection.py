"""Paths that control the sandbox, and therefore stay read-only in every confinement.

A program that can change the server's home, its code or the settings of a trusted project controls
what the next command may do, and one that can replace the server's socket receives what clients
send. A policy, a grant or a working folder can make the places around these paths writable, but
never the paths themselves.
"""

# Paths are strings here: they become arguments of other programs.
# ruff: noqa: PTH111, PTH113, PTH117, PTH118, PTH120, PTH208

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from treadle.sandbox.mounts import Mounts, read_mounts
from treadle.sandbox.paths import Identity, identity, is_within, links, parents, real

OPENABLE: Final = ("memories", "worktrees")
"""Folders of a home in which agents work; their contents do not control the sandbox."""

SETTINGS: Final = (".codex", ".agents")
"""Folders of a project whose contents take effect outside the sandbox."""

_HOMES: Final = ("~/.treadle", "~/.codex")
_HOME_VARIABLES: Final = ("TREADLE_HOME", "CODEX_HOME")
# What Python loads code from, or finds code by.
_OF_PREFIX: Final = ("bin", "include", "lib", "lib32", "lib64", "pyvenv.cfg", "Scripts")


@dataclass(frozen=True)
class Protected:
    """The protected paths on disk, without links.

    `closed`: nothing in them can be made writable. `reserved`: the path itself cannot be a writable
    root, but a deeper one stays writable. `homes`: only the folders of `OPENABLE` can be made
    writable. `anchors`: folders with a link that leads to one of the others.
    """

    closed: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    # Settings of trusted projects; protected like those of the workspace.
    settings: tuple[str, ...] = ()

    def may_open(self, root: str) -> bool:
        """Return whether a path without links may be a writable root."""
        path = self._canonical(root)
        closed = (*self.closed, *self.settings)
        if any(is_within(path, each) for each in closed) or path in self.reserved:
            return False
        return all(
            path[len(home) + 1 :].split("/", 1)[0] in OPENABLE
            for home in self.homes
            if is_within(path, home)
        )

    def inside(self, roots: Sequence[str]) -> list[str]:
        """Return every protected path in one of the roots, spelled as seen from there."""
        found = dict.fromkeys(self._within(roots))
        for anchor in self.anchors:
            if anchor not in roots and any(is_within(anchor, root) for root in roots):
                found[anchor] = None
        # A link directly in a root cannot be protected by closing its folder.
        found |= dict.fromkeys(link for link in self.links if os.path.dirname(link) in roots)
        return list(found)

    def _within(self, roots: Sequence[str]) -> Iterator[str]:
        for root in roots:
            yield from (path for path in self._all if is_within(path, root))
            # The same folder can be mounted twice, or spelled in another case.
            for parent, path in self._above.get(identity(root), ()):
                if parent != root:
                    yield os.path.join(root, path[len(parent.rstrip("/")) + 1 :])

    def _canonical(self, path: str) -> str:
        """Return a path in the spelling of the protected path that contains it, if any."""
        for parent in (path, *parents(path)):
            same = self._known.get(identity(parent))
            if same is not None:
                return same + path[len(parent.rstrip("/")) :]
        return path

    @cached_property
    def _all(self) -> tuple[str, ...]:
        return (*self.homes, *self.reserved, *self.closed)

    @cached_property
    def _known(self) -> Mapping[Identity | None, str]:
        known = {identity(path): path for path in reversed(self._all)}
        known.pop(None, None)
        return known

    @cached_property
    def _above(self) -> Mapping[Identity | None, list[tuple[str, str]]]:
        """The protected paths by the folders that contain them, and the spelling of these."""
        found: dict[Identity | None, list[tuple[str, str]]] = {}
        for path in self._all:
            for parent in parents(path):
                found.setdefault(identity(parent), []).append((parent, path))
        found.pop(None, None)
        return found


class Protection:
    """What one server protects.

    `trusted` returns the folders whose settings the user trusts, `sockets` the paths on which the
    server listens; both are called for each command.
    """

    def __init__(
        self,
        *,
        homes: Iterable[str] = (),
        closed: Iterable[str] = (),
        reserved: Iterable[str] = (),
        trusted: Callable[[], Iterable[str]] = tuple,
        sockets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._homes = tuple(dict.fromkeys(homes))
        self._closed = tuple(dict.fromkeys(closed))
        self._reserved = tuple(dict.fromkeys(reserved))
        self._trusted = trusted
        self._sockets = sockets
        self._real: dict[str, str] = {}
        self._mounts = Mounts(b"")
        # The last result, before and after mounts were resolved.
        self._found = self._last = Protected()

    def now(self) -> Protected:
        """Resolve the paths on disk."""
        code = self._code
        homes = dict.fromkeys(map(real, self._homes))
        # Settings are often links to a dotfiles folder.
        targets = [link for home in homes for link in _links_in(home)]
        sockets = sorted(self._sockets())
        named = (*self._homes, *targets, *sockets)
        found = dict.fromkeys(link for path in named for link in links(path))
        all_links = tuple({**dict.fromkeys(code.links), **found})
        current = replace(
            code,
            closed=tuple(dict.fromkeys([*code.closed, *map(real, (*targets, *sockets))])),
            homes=tuple(homes),
            anchors=tuple(dict.fromkeys(map(os.path.dirname, all_links))),
            links=all_links,
            settings=tuple(dict.fromkeys(self._settings())),
        )
        mounts = read_mounts(self._mounts)
        # The previous result knows the identities of its paths.
        if self._found != current or self._mounts is not mounts:
            self._found, self._mounts = current, mounts
            self._last = _everywhere(current, mounts)
        return self._last

    @cached_property
    def _code(self) -> Protected:
        """Return the code and the links that lead to it, as of the first call."""
        named = (*self._closed, *self._reserved)
        closed = tuple(dict.fromkeys(map(real, self._closed)))
        reserved = tuple(dict.fromkeys(map(real, self._reserved)))
        return Protected(
            closed=closed,
            reserved=reserved,
            links=tuple(dict.fromkeys(link for path in named for link in links(path))),
        )

    def _settings(self) -> Iterator[str]:
        for folder in self._trusted():
            place = self._real.setdefault(folder, real(folder))
            for name in SETTINGS:
                yield os.path.join(place, name)
                # The folder itself can be a link too.
                yield real(os.path.join(place, name))
            yield from map(real, _links_in(os.path.join(place, SETTINGS[0])))


def _everywhere(found: Protected, mounts: Mounts) -> Protected:
    """Return the protected paths under all names that mounts give them, and the kernel's own."""

    def named(paths: tuple[str, ...]) -> tuple[str, ...]:
        # A mount can show a part of such a path alone, but nothing else in a prefix is closed.
        also = (name for path in paths for name, part in mounts.other_names(path) if not part)
        return tuple(dict.fromkeys((*paths, *also)))

    parts = {
        name: None
        for path in (*found.homes, *found.closed, *found.settings)
        for name, part in mounts.other_names(path)
        if part and not (path in found.homes and part.split("/", 1)[0] in OPENABLE)
    }
    return replace(
        found,
        closed=tuple(dict.fromkeys((*named(found.closed), *parts, *mounts.of_kernel()))),
        reserved=named(found.reserved),
        homes=named(found.homes),
        settings=named(found.settings),
    )


def server_protection(
    home: str,
    *,
    folders: Iterable[str] = (),
    trusted: Callable[[], Iterable[str]] = tuple,
    environ: Mapping[str, str] = os.environ,
) -> Protection:
    """Return what the server in this process protects: homes, settings, code and sockets."""
    from treadle.sandbox.backends.bubblewrap_program import find_bubblewrap
    from treadle.support.listeners import OWN_LISTENERS

    closed, reserved = code_paths()
    program = find_bubblewrap()
    return Protection(
        homes=[os.path.abspath(home), *known_homes(environ)],  # noqa: PTH100 - text
        closed=[*folders, *closed, *([program] if program else [])],
        reserved=reserved,
        trusted=trusted,
        sockets=lambda: OWN_LISTENERS.paths,
    )


def known_homes(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the homes of this user's servers: those in variables, and the default ones."""
    named = [environ[name] for name in _HOME_VARIABLES if environ.get(name)]
    usual = [os.path.expanduser(path) for path in _HOMES]
    return [os.path.abspath(path) for path in (*named, *usual)]  # noqa: PTH100 - text


def code_paths() -> tuple[list[str], list[str]]:
    """Return what this process loads code from: paths to close, and prefixes to reserve."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100 - text
    prefixes = [path for path in dict.fromkeys((sys.prefix, sys.base_prefix)) if path != "/"]
    closed = [package, *(os.path.join(path, name) for path in prefixes for name in _OF_PREFIX)]
    closed += [
        entry
        for entry in sys.path
        if os.path.isabs(entry)
        and (any(is_within(entry, prefix) for prefix in prefixes) or _holds_packages(entry))
        and entry not in prefixes
    ]
    # Missing closed paths would need placeholders, one for each command.
    there = [path for path in dict.fromkeys(closed) if os.path.lexists(path)]
    # This file turns an interpreter into a virtual environment, even under `-I`.
    program = sys.executable
    folders = [*parents(program)][:2] if os.path.isabs(program) else []
    there += [os.path.join(folder, "pyvenv.cfg") for folder in folders]
    there += _packages_of_user()
    there = [*dict.fromkeys(there)]
    outermost = [path for path in there if not any(each in there for each in parents(path))]
    return outermost, prefixes


def _packages_of_user() -> list[str]:
    """Return the folder in the home from which the interpreter also loads code at its start.

    Missing or empty, it is not on `sys.path`, but the next start reads what is in it by then.
    """
    if not site.ENABLE_USER_SITE:
        return []
    return [os.path.abspath(site.getusersitepackages())]  # noqa: PTH100 - text


def _holds_packages(folder: str) -> bool:
    """Return whether packages were installed into a folder, rather than a project's sources.

    An archive of packages counts too.
    """
    try:
        return os.path.isfile(folder) or any(
            name.endswith(".dist-info") for name in os.listdir(folder)
        )
    except OSError:
        return False


def _links_in(settings: str) -> Iterator[str]:
    """Yield the links directly in a settings folder and among its rules."""
    for folder in (settings, os.path.join(settings, "rules")):
        try:
            with os.scandir(folder) as entries:
                yield from (entry.path for entry in entries if entry.is_symlink())
        except OSError:
            continue
