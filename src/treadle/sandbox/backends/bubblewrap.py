"""Confinement by bubblewrap: mount, process, IPC and network namespaces around each command.

Everything is mounted read-only. Then writable paths are opened, and the closed paths inside them
are closed again, outermost first.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.sandbox.backends.placeholders import Placeholder, take
from treadle.sandbox.backends.seccomp import program
from treadle.sandbox.paths import (
    between,
    find_program,
    is_out_of_reach,
    is_within,
    open_place,
    parents,
)
from treadle.sandbox.policy import PLATFORM_FOLDERS, Confinement
from treadle.support.code_guard import read_code
from treadle.support.files.kinds import is_empty_folder, is_file

FILTER_FD, PROXY_FD = 3, 4
# Gives the terminal to the command rather than to bubblewrap: Ctrl-C reaches only the command.
_OWN_TERMINAL: Final = ("setsid", "--ctty")
_SEES_PROCESSES: Final = (
    "a command can list the processes of this machine and read their arguments, because a separate "
    "/proc cannot be mounted here"
)
_CAN_SWAP: Final = (
    "a running command could replace a nested writable folder with a link while "
    "another one is being started (a bubblewrap with --bind-fd prevents that)"
)
# With these, the loader would run the command's own code in bubblewrap, before it confines.
_LOADER: Final = "LD_"


class Unprotectable(Exception):
    """A path that must stay read-only cannot be protected."""


class NamespaceSupport(Struct, frozen=True):
    """The namespaces that bubblewrap can create on this machine."""

    has_proc: bool = True
    has_user: bool = True
    # Whether it can mount from a descriptor. Older releases only take paths.
    has_bind_fd: bool = True


def gaps(flavour: NamespaceSupport) -> tuple[str, ...]:
    """What a command could still do with these namespaces, for people."""
    found = () if flavour.has_proc else (_SEES_PROCESSES,)
    return found if flavour.has_bind_fd else (*found, _CAN_SWAP)


class Wrapped(Struct, frozen=True):
    """A command inside bubblewrap, its filter, and its placeholders."""

    argv: list[str]
    # Inherited as FILTER_FD, and closed here after the start.
    filter_fd: int
    placeholders: list[Placeholder]
    # The folders to mount, inherited after the filter and the proxy, and closed here too.
    mounted: list[int]

    @property
    def descriptors(self) -> list[int]:
        """Close everything that is not needed after the start."""
        return [self.filter_fd, *self.mounted]


def wrap(
    argv: Sequence[str],
    *,
    program_path: str,
    flavour: NamespaceSupport,
    cwd: str,
    env: Mapping[str, str],
    confinement: Confinement,
    has_terminal: bool,
) -> Wrapped:
    """Wrap a command in a sandbox.

    Raises:
        Unprotectable: a link is in the place of a protected folder.
        OSError: no descriptor is available for the filter.
    """
    mounts = _Mounts(confinement, flavour)
    try:
        system = list(_system(confinement, flavour, mounts))
        words = list(mounts.arguments())
        filter_fd = _filter(confinement)
    except BaseException:
        mounts.abandon()
        raise
    inner = [*_own_terminal(), *argv] if has_terminal else argv
    if confinement.has_proxy:
        inner = [*_entry(), *inner]
    options = [
        *_namespaces(flavour, network=confinement.network),
        *system,
        *words,
        # Files in this root would use uncounted memory. The mount points exist by now.
        *(("--remount-ro", "/") if confinement.readable is not None else ()),
        *(
            word
            for name in env
            if name.startswith(_LOADER)
            for word in ("--setenv", name, env[name])
        ),
        *("--seccomp", str(FILTER_FD), "--chdir", cwd, "--"),
    ]
    outer = [program_path, *options, *inner]
    return Wrapped(outer, filter_fd, mounts.placeholders, mounts.descriptors)


@cache
def _own_terminal() -> tuple[str, ...]:
    program = find_program(_OWN_TERMINAL[0], cwd="/", path="/usr/bin:/bin:/usr/sbin:/sbin")
    return (program, *_OWN_TERMINAL[1:]) if program else ()


@cache
def _entry() -> tuple[str, ...]:
    """Return the program that connects to the egress proxy, and then becomes the command."""
    from treadle.sandbox.network.proxy import PORT

    path = Path(__file__).parent.with_name("network") / "shim.py"
    text = read_code(__spec__, str(path)).decode()
    program = str(Path(sys.executable).resolve())
    return (program, "-I", "-S", "-c", text, str(PROXY_FD), str(PORT))


def outer_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of bubblewrap, which it passes on; the rest comes by arguments."""
    return {name: value for name, value in env.items() if not name.startswith(_LOADER)}


def _namespaces(flavour: NamespaceSupport, *, network: bool) -> Iterator[str]:
    yield from ("--new-session", "--die-with-parent", "--unshare-pid", "--unshare-ipc")
    if flavour.has_user:
        yield "--unshare-user"
    if not network:
        yield "--unshare-net"
    yield from ("--cap-drop", "ALL")


def _system(confinement: Confinement, flavour: NamespaceSupport, mounts: _Mounts) -> Iterator[str]:
    if confinement.readable is None:
        whole = any(root.path == "/" for root in confinement.writable)
        yield from ("--bind" if whole else "--ro-bind", "/", "/")
    else:
        yield from ("--tmpfs", "/")
        # The interpreter's own files, which reveal nothing about the user.
        entry = (sys.base_prefix,) if confinement.has_proxy else ()
        for path in sorted((*confinement.readable, *entry)):
            if path in (*PLATFORM_FOLDERS, *entry):
                # These may be links, which no command can replace.
                yield from ("--ro-bind-try", path, path)
            else:
                yield from mounts.show(path)
    yield from ("--dev", "/dev")
    if flavour.has_proc:
        yield from ("--proc", "/proc")
        # For the kernel, a root user without privileges still owns its settings.
        for path in ("/proc/sys", "/proc/sysrq-trigger"):
            yield from ("--ro-bind-try", path, path)
        # A command could lower its OOM score, and the kernel would kill the server instead.
        yield from ("--remount-ro", "/proc")
    elif any(root.path == "/" for root in confinement.writable):
        yield from ("--ro-bind", "/proc", "/proc")


class _Mounts:
    """The mounts of one command, each path after its parents."""

    def __init__(self, confinement: Confinement, flavour: NamespaceSupport) -> None:
        self.placeholders: list[Placeholder] = []
        self.descriptors: list[int] = []
        self._confinement = confinement
        self._first = PROXY_FD + 1 if confinement.has_proxy else FILTER_FD + 1
        self._has_bind_fd = flavour.has_bind_fd

    def arguments(self) -> Iterator[str]:
        """Yield the arguments for bubblewrap.

        Raises:
            Unprotectable: a path cannot be kept read-only, or has just changed.
        """
        rules = self._rules()
        for path in sorted(rules, key=lambda path: path.count("/")):
            yield from self._mount(path, rules[path])

    def abandon(self) -> None:
        """Release everything: no command is started."""
        for placeholder in self.placeholders:
            placeholder.release()
        for descriptor in self.descriptors:
            os.close(descriptor)

    def _rules(self) -> dict[str, str]:
        confinement, held = self._confinement, self.placeholders
        roots = [
            root
            for root in confinement.writable
            if root.path == "/" or (Path(root.path).exists() and _can_guard(root.path))
        ]
        tops = dict.fromkeys(root.path for root in roots)
        rules = dict.fromkeys((path for path in tops if path != "/"), "open")
        kept = [path for root in roots for path in root.read_only]
        # The sandbox has its own /proc.
        kept += [
            _lasting(path, tops) for path in confinement.protected if not is_within(path, "/proc")
        ]
        for path in dict.fromkeys(map(_keepable, kept)):
            if any(place in tops for place in (path, *parents(path))) and _is_there(path, held):
                rules[path] = "cover" if _may_vanish(path, held[-1:]) else "close"
        rules |= {path: "hide" for path in confinement.denied if Path(path).exists()}
        # A folder above a mount could be renamed and replaced.
        anchors = (
            anchor
            for path in rules
            for top in parents(path)
            if top in tops
            for anchor in between(top, path)
        )
        return {anchor: "open" for anchor in anchors if _is_open(anchor, rules)} | rules

    def _mount(self, path: str, rule: str) -> tuple[str, ...]:
        if rule == "open":
            return self._open(path)
        if rule == "close":
            return ("--ro-bind", path, path)
        if rule == "cover":
            return ("--tmpfs", path, "--remount-ro", path)
        if Path(path).is_dir():
            return ("--perms", "000", "--tmpfs", path, "--remount-ro", path)
        return ("--ro-bind", "/dev/null", path)

    def show(self, path: str) -> tuple[str, ...]:
        """Mount a readable path; nothing if it is missing, or leads elsewhere by now."""
        if not self._has_bind_fd:
            return ("--ro-bind-try", path, path)
        try:
            return ("--ro-bind-fd", self._hold(path), path)
        except OSError:
            return ()

    def _open(self, path: str) -> tuple[str, ...]:
        """Mount what is there now: a running command could replace it with a link."""
        if not self._has_bind_fd:
            return ("--bind", path, path)
        try:
            return ("--bind-fd", self._hold(path), path)
        except OSError as error:
            raise Unprotectable(f"{path} cannot be opened: {error.strerror}") from error

    def _hold(self, path: str) -> str:
        """Open a path for bubblewrap, and return the number that the descriptor has there."""
        self.descriptors.append(open_place(path))
        return str(self._first + len(self.descriptors) - 1)


def _is_open(path: str, rules: Mapping[str, str]) -> bool:
    """Return whether the deepest rule above a path opens it; a root of everything has no rule."""
    above = next((rules[parent] for parent in parents(path) if parent in rules), "open")
    return path not in rules and above == "open"


def _lasting(path: str, tops: Collection[str]) -> str:
    """Return the folder of a protected file, unless that is a root itself.

    Programs replace a file when they write it, and the kernel then detaches what is mounted on it.
    """
    folder = next(parents(path))
    is_inside = folder not in tops and any(parent in tops for parent in parents(folder))
    return folder if is_inside and is_file(path) else path


def _keepable(path: str) -> str:
    """Return what to protect so that nothing can be created at a path or in its place.

    That is the path itself, or the outermost missing folder on the way to it. A file on the way
    is protected instead, and so is a folder in which only a command could create something,
    after changing its mode.
    """
    if os.path.lexists(path):
        return path
    for parent in parents(path):
        if not os.path.lexists(parent):
            path = parent
            continue
        return path if Path(parent).is_dir() and _can_guard(parent) else parent
    return path


def _can_guard(root: str) -> bool:
    """Return whether we can create placeholders in a root, or no program can create anything there.

    The owner of a read-only folder can change its mode from inside; such a root stays closed.
    """
    if os.access(root, os.W_OK):
        return True
    found = Path(root).stat()
    return not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid()


def _may_vanish(path: str, held: list[Placeholder]) -> bool:
    """Return whether it is another user's empty folder: a placeholder that its owner removes.

    If it disappears before bubblewrap binds it, the command would fail.
    """
    if any(placeholder.path == path for placeholder in held):
        return False
    return not os.path.islink(path) and is_empty_folder(path)  # noqa: PTH114 - never fails


def _is_there(path: str, held: list[Placeholder]) -> bool:
    """Return whether there is something to mount over, after creating it if necessary."""
    try:
        placeholder = take(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    except OSError as error:
        if not Path(path).exists():
            return False
        raise Unprotectable(f"{path} cannot be kept read-only: {error.strerror}") from error
    if placeholder is not None:
        held.append(placeholder)
    elif Path(path).is_symlink():
        return _is_settled(path)
    return True


def _is_settled(link: str) -> bool:
    """Return False for a link that a command could not replace anyway."""
    if is_out_of_reach(link):
        return False
    raise Unprotectable(f"{link} is a link, which a command could replace by its own folder")


def _filter(confinement: Confinement) -> int:
    """Return the seccomp program in a pipe, for bubblewrap; it is far smaller than the pipe."""
    reader, writer = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, reader)
        try:
            steps = program(network=confinement.network, has_proxy=confinement.has_proxy)
            os.write(writer, steps)
        finally:
            os.close(writer)
        stack.pop_all()
    return reader
