"""What a command may touch: a sandbox policy worked out for one folder.

Nothing here enforces anything on other processes; the backends do.
"""

# Paths are text here: they end up in the arguments of other programs.
# ruff: noqa: PTH113, PTH117, PTH118, PTH120

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from msgspec import UnsetType

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
from treadle.sandbox.paths import git_folders, is_out_of_reach, is_within, links, matches, real
from treadle.sandbox.protection import Protected

PROTECTED: Final = (".git", ".codex", ".agents")
"""Names below a writable folder that stay read-only: what is in them runs outside the sandbox."""

PLATFORM_FOLDERS: Final = tuple("/bin /etc /lib /lib32 /lib64 /nix/store /opt /sbin /usr".split())
"""What programs need in order to start, where a policy names the folders that may be read."""


@dataclass(frozen=True, slots=True)
class WritableRoot:
    """A folder or file that may be written, and the paths below it that may not."""

    path: str
    read_only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Confinement:
    """What one command may do; the default is to read every file and nothing else."""

    writable: tuple[WritableRoot, ...] = ()
    network: bool = False
    # No network of its own, but a gate that leads to chosen hosts.
    has_gate: bool = False
    is_unrestricted: bool = False
    denied: tuple[str, ...] = ()
    # None: every file may be read.
    readable: tuple[str, ...] | None = None
    # What decides about the sandbox and lies in a writable folder: read-only under every backend.
    protected: tuple[str, ...] = ()

    def may_write(self, path: str) -> bool:
        """Whether a file may be made or changed, wherever its links lead."""
        if self.is_unrestricted:
            return True
        # A link that stands where the file is to be is judged by both ends of it.
        return self.is_open(real(path)) and self.is_open(real(os.path.dirname(path), path))

    def may_read(self, path: str) -> bool:
        """Whether commands could read a file, wherever its links lead."""
        if self.is_unrestricted:
            return True
        place = real(path)
        if any(is_within(place, closed) for closed in self.denied):
            return False
        roots = (root.path for root in self.writable)
        return self.readable is None or any(
            is_within(place, folder) for folder in (*self.readable, *roots)
        )

    def is_open(self, path: str) -> bool:
        """What the deepest rule says about a path without links."""
        best, is_allowed = -1, False
        for root in self.writable:
            if is_within(path, root.path) and len(root.path) >= best:
                best, is_allowed = len(root.path), True
        for closed in self.closed():
            if is_within(path, closed) and len(closed) >= best:
                best, is_allowed = len(closed), False
        return is_allowed

    def closed(self) -> Iterator[str]:
        """Every path below a writable one that may not be written."""
        for root in self.writable:
            yield from root.read_only
        yield from self.protected
        yield from self.denied


UNRESTRICTED: Final = Confinement(is_unrestricted=True, network=True)
"""No sandbox: a command may do whatever the user may."""


def confine(
    policy: SandboxPolicy,
    cwd: str,
    *,
    protected: Protected,
    is_planted: Callable[[str], bool] = lambda _link: False,
    environ: Mapping[str, str] | None = None,
    granted: Sequence[AdditionalPermissionProfile] = (),
) -> Confinement:
    """Work out a policy for commands of a folder, widened by what was granted.

    Nothing that is protected is opened, whoever asks for it. `is_planted` tells whether a link
    may be the work of a command that ran earlier, perhaps in another thread.
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
        readable=None if "/" in roots else _readable(access, [*roots, *given["read"]]),
    )


@dataclass(frozen=True, slots=True)
class _Places:
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
    """The roots that paths name; those that a command could have led elsewhere open nothing."""
    places = {path: real(path) for path in paths}
    paths = [path for path in places if protected.may_open(places[path])]
    ways = {path: links(path) for path in paths}
    led = {
        path
        for path in paths
        if any(_is_led(link, places.values()) or is_planted(link) for link in ways[path])
    }
    plain = list(dict.fromkeys(places[path] for path in paths if path not in led))
    explicit = {places[path] for path in granted if path in ways and path not in led}
    opened = tuple(_protected(root, plain, explicit, protected) for root in plain)
    # One that is open anyway is still a root: the names in it that stay closed are to be kept.
    rest = [places[path] for path in paths if path in led and Confinement(opened).may_write(path)]
    return (*opened, *(_protected(root, [*plain, *rest], explicit, protected) for root in rest))


def _is_led(link: str, roots: Collection[str]) -> bool:
    """Whether commands may make this link: today's need not be yesterday's."""
    return any(is_within(link, root) for root in roots) and not is_out_of_reach(link)


def _kept(opened: tuple[WritableRoot, ...], paths: list[str]) -> tuple[str, ...]:
    """The paths that would be writable, without those that lie in another one."""
    # Names that stay closed in a root do not count: not every backend can keep them.
    found = Confinement(tuple(WritableRoot(root.path) for root in opened))
    for path in sorted(paths, key=lambda path: path.count("/")):
        if found.is_open(path):
            found = replace(found, protected=(*found.protected, path))
    return found.protected


def _readable(access: ReadOnlyAccess | UnsetType | None, also: list[str]) -> tuple[str, ...] | None:
    match access:
        case RestrictedReadOnlyAccess():
            platform = PLATFORM_FOLDERS if access.include_platform_defaults else ()
            return tuple(dict.fromkeys([*platform, *map(real, [*access.readable_roots, *also])]))
        case FullAccessReadOnlyAccess() | UnsetType() | None:
            return None
        case _:
            assert_never(access)


def _protected(
    root: str, roots: list[str], explicit: set[str], protected: Protected
) -> WritableRoot:
    """A root without the names that stay read-only, except those granted by their own name."""
    kept = [os.path.join(root, name) for name in PROTECTED] if not os.path.isfile(root) else []
    kept += [path for path in protected.settings if path != root and is_within(path, root)]
    for folder in git_folders(root):
        # The innermost root speaks for it.
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
                    return []  # what is not understood grants nothing
                case _:
                    assert_never(path.value)
        case _:
            assert_never(path)
