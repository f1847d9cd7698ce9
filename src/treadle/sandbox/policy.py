"""What a command may access: a sandbox policy resolved for one folder.

The backends enforce it.
"""

# Paths are strings here: they become arguments of other programs.
# ruff: noqa: PTH113, PTH117, PTH118, PTH120

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, assert_never

from msgspec import Struct, UnsetType
from msgspec.structs import replace

from treadle.protocol.permission import (
    AdditionalPermissionProfile,
    FileSystemPath,
    FileSystemSandboxEntry,
    GlobPatternFileSystemPath,
    KindFileSystemSpecialPath,
    MinimalFileSystemSpecialPath,
    PathFileSystemPath,
    RootFileSystemSpecialPath,
    SlashTmpFileSystemSpecialPath,
    SpecialFileSystemPath,
    TmpdirFileSystemSpecialPath,
    UnknownFileSystemSpecialPath,
)
from treadle.protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    FullAccessReadOnlyAccess,
    ReadOnlyAccess,
    ReadOnlySandboxPolicy,
    RestrictedReadOnlyAccess,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.sandbox.paths import (
    git_folders,
    is_out_of_reach,
    is_within,
    matches,
    real,
)
from treadle.sandbox.protection import Protected
from treadle.support.files.links import Way, follow

PROTECTED: Final = (".git", ".codex", ".agents")
"""Names in a writable folder that stay read-only: their contents run outside the sandbox."""

PLATFORM_FOLDERS: Final = tuple("/bin /etc /lib /lib32 /lib64 /nix/store /opt /sbin /usr".split())
"""What programs need to start, for policies that list the readable folders."""


logger = logging.getLogger(__name__)


class WritableRoot(Struct, frozen=True):
    """A writable folder or file, and the paths below it that are not writable."""

    path: str
    read_only: tuple[str, ...] = ()


class Confinement(Struct, frozen=True):
    """What one command may do; by default it may only read files."""

    writable: tuple[WritableRoot, ...] = ()
    network: bool = False
    # An isolated network, with an egress proxy that leads to chosen hosts.
    has_proxy: bool = False
    is_unrestricted: bool = False
    denied: tuple[str, ...] = ()
    # None: every file is readable.
    readable: tuple[str, ...] | None = None
    # Paths in writable folders that control the sandbox: read-only under every backend.
    protected: tuple[str, ...] = ()

    def may_write(self, path: str) -> bool:
        """Return whether a file may be created or changed, after resolving its links."""
        if self.is_unrestricted:
            return True
        way, folder = follow(path), follow(os.path.dirname(path))
        if way.is_too_long or folder.is_too_long:
            return False
        # A link in place of the file is checked at both of its ends.
        entry = os.path.join(folder.place, path.rpartition("/")[2])
        return self.is_open(way.place) and self.is_open(entry)

    def may_read(self, path: str) -> bool:
        """Return whether commands may read a file, after resolving its links."""
        if self.is_unrestricted:
            return True
        way = follow(path)
        place = way.place
        # Where the rest of the links lead is unknown, and the kernel may follow more of them.
        if any(is_within(place, closed) for closed in self.denied):
            return False
        if way.is_too_long:
            return self.readable is None and not self.denied
        roots = (root.path for root in self.writable)
        return self.readable is None or any(
            is_within(place, folder) for folder in (*self.readable, *roots)
        )

    def is_open(self, path: str) -> bool:
        """Return the verdict of the deepest rule for a path without links."""
        best, is_allowed = -1, False
        for root in self.writable:
            if is_within(path, root.path) and len(root.path) >= best:
                best, is_allowed = len(root.path), True
        for closed in self.closed():
            if is_within(path, closed) and len(closed) >= best:
                best, is_allowed = len(closed), False
        return is_allowed

    def closed(self) -> Iterator[str]:
        """Every path below a writable one that is not writable."""
        for root in self.writable:
            yield from root.read_only
        yield from self.protected
        yield from self.denied


UNRESTRICTED: Final = Confinement(is_unrestricted=True, network=True)
"""Return the confinement without a sandbox: a command may do whatever the user may."""


def confine(
    policy: SandboxPolicy,
    cwd: str,
    *,
    protected: Protected,
    is_planted: Callable[[str], bool] = lambda _link: False,
    environ: Mapping[str, str] | None = None,
    granted: Sequence[AdditionalPermissionProfile] = (),
) -> Confinement:
    """Compute the confinement of a policy for commands of a folder, extended by grants.

    Protected paths never become writable. `is_planted` returns whether an earlier command,
    perhaps of another thread, may have created a link.
    """
    places = _Places(cwd, os.environ if environ is None else environ)
    match policy:
        case DangerFullAccessSandboxPolicy() | ExternalSandboxSandboxPolicy():
            return UNRESTRICTED
        case ReadOnlySandboxPolicy():
            base: list[str] = []
            access = policy.access
        case WorkspaceWriteSandboxPolicy():
            base = _workspace(policy, places)
            access = policy.read_only_access
        case _:
            assert_never(policy)
    network = policy.network_access or any(p.network and p.network.enabled for p in granted)
    entries = [entry for profile in granted for entry in _entries(profile)]
    given = {access: _paths(entries, access, places) for access in ("read", "write", "deny")}
    paths = [*base, *given["write"]]
    opened = _opened(paths, given["write"], protected, is_planted)
    roots = [root.path for root in opened]
    return Confinement(
        writable=opened,
        protected=_kept(opened, protected.inside(roots)),
        network=bool(network),
        denied=tuple(real(path) for path in given["deny"]),
        readable=None if "/" in roots else _readable(access, roots, given["read"], is_planted),
    )


class _Places(Struct, frozen=True):
    cwd: str
    environ: Mapping[str, str]

    @property
    def tmpdir(self) -> list[str]:
        path = self.environ.get("TMPDIR", "")
        return [path] if os.path.isabs(path) else []


def _workspace(policy: WorkspaceWriteSandboxPolicy, places: _Places) -> list[str]:
    tmp = [] if policy.exclude_slash_tmp else ["/tmp"]  # noqa: S108 - the folder, no file of ours
    tmpdir = [] if policy.exclude_tmpdir_env_var else places.tmpdir
    return [places.cwd, *policy.writable_roots, *tmp, *tmpdir]


def _opened(
    paths: list[str],
    granted: list[str],
    protected: Protected,
    is_planted: Callable[[str], bool],
) -> tuple[WritableRoot, ...]:
    """Resolve paths to roots; paths that a command could have redirected are dropped."""
    ways = {path: follow(path) for path in paths}
    places = {path: way.place for path, way in ways.items()}
    paths = [path for path in places if protected.may_open(places[path])]
    led = {path for path in paths if _may_be_led(ways[path], places.values(), is_planted)}
    plain = list(dict.fromkeys(places[path] for path in paths if path not in led))
    explicit = {places[path] for path in granted if path in paths and path not in led}
    opened = tuple(_roots(plain, plain, explicit, protected))
    # One that is writable anyway is still a root: its read-only names must be kept.
    found = Confinement(opened)
    rest = [places[path] for path in paths if path in led and found.is_open(places[path])]
    return (*opened, *_roots(rest, [*plain, *rest], explicit, protected))


def _roots(
    paths: list[str], roots: list[str], explicit: set[str], protected: Protected
) -> Iterator[WritableRoot]:
    for path in paths:
        try:
            yield _protected(path, roots, explicit, protected)
        except OSError as error:
            # What must stay read-only is unknown.
            logger.warning("folder stays read-only", extra={"path": path, "error": str(error)})


def _may_be_led(way: Way, roots: Collection[str], is_planted: Callable[[str], bool]) -> bool:
    """Return whether commands may have chosen where a path leads."""
    return way.is_too_long or any(_is_led(link, roots) or is_planted(link) for link in way.links)


def _is_led(link: str, roots: Collection[str]) -> bool:
    """Return whether commands may create this link: it may have changed since."""
    return any(is_within(link, root) for root in roots) and not is_out_of_reach(link)


def _kept(opened: tuple[WritableRoot, ...], paths: list[str]) -> tuple[str, ...]:
    """Return the paths that would be writable, without nested ones."""
    # Read-only names in a root do not count: not every backend can enforce them.
    found = Confinement(tuple(WritableRoot(root.path) for root in opened))
    for path in sorted(paths, key=lambda path: path.count("/")):
        if found.is_open(path):
            found = replace(found, protected=(*found.protected, path))
    return found.protected


def restricts_reading(policy: SandboxPolicy) -> bool:
    """Whether a policy names what commands may read."""
    match policy:
        case ReadOnlySandboxPolicy():
            return isinstance(policy.access, RestrictedReadOnlyAccess)
        case WorkspaceWriteSandboxPolicy():
            return isinstance(policy.read_only_access, RestrictedReadOnlyAccess)
        case _:
            return False


def _readable(
    access: ReadOnlyAccess | UnsetType | None,
    roots: list[str],
    granted: list[str],
    is_planted: Callable[[str], bool],
) -> tuple[str, ...] | None:
    match access:
        case RestrictedReadOnlyAccess():
            platform = PLATFORM_FOLDERS if access.include_platform_defaults else ()
            ways = map(follow, [*access.readable_roots, *granted])
            # What a command could have redirected leads to whatever it wants to read.
            places = [way.place for way in ways if not _may_be_led(way, roots, is_planted)]
            return tuple(dict.fromkeys([*platform, *places, *roots]))
        case FullAccessReadOnlyAccess() | UnsetType() | None:
            return None
        case _:
            assert_never(access)


def _protected(
    root: str, roots: list[str], explicit: set[str], protected: Protected
) -> WritableRoot:
    """Return a root with its read-only names, except those that are granted by name."""
    kept = [os.path.join(root, name) for name in PROTECTED] if not os.path.isfile(root) else []
    kept += [path for path in protected.settings if path != root and is_within(path, root)]
    for folder in git_folders(root):
        # The innermost root decides.
        holders = [other for other in roots if is_within(folder, other)]
        if holders and max(holders, key=len) != folder:
            kept.append(folder)
    return WritableRoot(root, tuple(path for path in dict.fromkeys(kept) if path not in explicit))


def _entries(profile: AdditionalPermissionProfile) -> Iterator[FileSystemSandboxEntry]:
    files = profile.file_system
    if files is None:
        return
    yield from files.entries or ()
    for path in files.read or ():
        yield FileSystemSandboxEntry(access="read", path=PathFileSystemPath(path))
    for path in files.write or ():
        yield FileSystemSandboxEntry(access="write", path=PathFileSystemPath(path))


def _paths(entries: list[FileSystemSandboxEntry], access: str, places: _Places) -> list[str]:
    return [p for entry in entries if entry.access == access for p in _located(entry.path, places)]


def _located(path: FileSystemPath, places: _Places) -> list[str]:
    match path:
        case PathFileSystemPath():
            return [os.path.join(places.cwd, path.path)]
        case GlobPatternFileSystemPath():
            return matches(os.path.join(places.cwd, path.pattern))
        case SpecialFileSystemPath():
            match path.value:
                case RootFileSystemSpecialPath():
                    return ["/"]
                case SlashTmpFileSystemSpecialPath():
                    return ["/tmp"]  # noqa: S108 - the folder, no file of ours
                case TmpdirFileSystemSpecialPath():
                    return places.tmpdir
                case KindFileSystemSpecialPath(subpath=subpath):
                    return [os.path.join(places.cwd, subpath or "")]
                case MinimalFileSystemSpecialPath():
                    return list(PLATFORM_FOLDERS)
                case UnknownFileSystemSpecialPath():
                    return []  # unknown values grant nothing
                case _:
                    assert_never(path.value)
        case _:
            assert_never(path)
