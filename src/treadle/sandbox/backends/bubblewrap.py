"""Confinement by bubblewrap: a mount, process, IPC and network namespace around each command.

Everything is mounted read-only, then what may be written is opened, then what stays closed inside
that is closed again, outermost first.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from treadle.sandbox.backends.placeholders import Placeholder, take
from treadle.sandbox.backends.seccomp import program
from treadle.sandbox.paths import (
    between,
    find_program,
    is_out_of_reach,
    is_within,
    links,
    open_place,
    parents,
    real,
)
from treadle.sandbox.policy import Confinement
from treadle.support.code_guard import read_code

_PROGRAM: Final = "bwrap"
_SYSTEM: Final = ("/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin")
FILTER_FD, GATE_FD = 3, 4
# Makes the terminal the command's own, apart from bubblewrap: Ctrl-C is for the command alone.
_OWN_TERMINAL: Final = ("setsid", "--ctty")
_SEES_PROCESSES: Final = (
    "a command can list the processes of this machine and read their arguments, because no other "
    "/proc can be mounted here"
)
_CAN_SWAP: Final = (
    "a command that still runs could put a link in the place of a nested writable folder while "
    "another one is being started (a bubblewrap with --bind-fd prevents that)"
)
# These would have the loader run code of the command's choice in bubblewrap, before it confines.
_LOADER: Final = "LD_"


class Unprotectable(Exception):
    """A path that has to stay read-only cannot be kept so."""


def find_bubblewrap() -> str | None:
    """Where it is on `PATH`: the system's own, or another that no command can have put there.

    It runs outside the sandbox, being what makes it.
    """
    folders = [folder for folder in os.get_exec_path() if folder.startswith("/")]
    for folder in sorted(folders, key=lambda folder: folder not in _SYSTEM):
        program = find_program(_PROGRAM, cwd="/", path=folder)
        if program is not None and (folder in _SYSTEM or not _may_be_planted(program)):
            return program
    return None


def _may_be_planted(program: str) -> bool:
    """Whether a command of one of the user's servers, past or present, could have made it."""
    from treadle.sandbox.opened_roots import OpenedRoots
    from treadle.sandbox.protection import known_homes

    places = (*links(program), real(program))
    folders = {str(Path(place).parent) for place in places}
    return any(
        any(map(opened.may_have_made, places)) or any(map(opened.may_have_filled, folders))
        for opened in map(OpenedRoots, map(Path, known_homes()))
    )


@dataclass(frozen=True, slots=True)
class NamespaceSupport:
    """Which of its namespaces bubblewrap can make on this machine."""

    has_proc: bool = True
    has_user: bool = True
    # Whether it can mount what a descriptor holds open. Older releases take paths alone.
    has_bind_fd: bool = True


def gaps(flavour: NamespaceSupport) -> tuple[str, ...]:
    """What a command could still do with these namespaces, in words for people."""
    found = () if flavour.has_proc else (_SEES_PROCESSES,)
    return found if flavour.has_bind_fd else (*found, _CAN_SWAP)


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A command inside bubblewrap, its filter, and the names that it holds."""

    argv: list[str]
    # To be inherited as FILTER_FD, and closed here after the command was started.
    filter_fd: int
    placeholders: list[Placeholder]
    # The folders to mount, to be inherited after the filter and the gate, and closed here too.
    mounted: list[int]

    @property
    def descriptors(self) -> list[int]:
        """All that is to be closed after the start."""
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
    """Put a command into a sandbox.

    Raises:
        Unprotectable: a link stands where a protected folder would have to be mounted.
        OSError: no descriptor is left for the filter.
    """
    mounts = _Mounts(confinement, flavour)
    try:
        words = list(mounts.arguments())
        filter_fd = _filter(confinement)
    except BaseException:
        mounts.abandon()
        raise
    inner = [*_own_terminal(), *argv] if has_terminal else argv
    if confinement.has_gate:
        inner = [*_entry(), *inner]
    options = [
        *_namespaces(flavour, network=confinement.network),
        *_system(confinement, flavour),
        *words,
        # Files in this root would be memory that is not counted. Mount points are there by now.
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
    """What opens the way to the gate, and then becomes the command."""
    from treadle.sandbox.network.proxy import PORT

    path = Path(__file__).parent.with_name("network") / "shim.py"
    text = read_code(__spec__, str(path)).decode()
    program = str(Path(sys.executable).resolve())
    return (program, "-I", "-S", "-c", text, str(GATE_FD), str(PORT))


def outer_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for bubblewrap itself, which hands it on; the rest comes by arguments."""
    return {name: value for name, value in env.items() if not name.startswith(_LOADER)}


def _namespaces(flavour: NamespaceSupport, *, network: bool) -> Iterator[str]:
    yield from ("--new-session", "--die-with-parent", "--unshare-pid", "--unshare-ipc")
    if flavour.has_user:
        yield "--unshare-user"
    if not network:
        yield "--unshare-net"
    yield from ("--cap-drop", "ALL")


def _system(confinement: Confinement, flavour: NamespaceSupport) -> Iterator[str]:
    if confinement.readable is None:
        whole = any(root.path == "/" for root in confinement.writable)
        yield from ("--bind" if whole else "--ro-bind", "/", "/")
    else:
        yield from ("--tmpfs", "/")
        # The interpreter's own files, which show nothing of the user's.
        entry = (sys.base_prefix,) if confinement.has_gate else ()
        for path in sorted((*confinement.readable, *entry)):
            yield from ("--ro-bind-try", path, path)
    yield from ("--dev", "/dev")
    if flavour.has_proc:
        yield from ("--proc", "/proc")
        # To the kernel a root without any privilege is still the owner of its settings.
        for path in ("/proc/sys", "/proc/sysrq-trigger"):
            yield from ("--ro-bind-try", path, path)
        # A command could lower its OOM score, and the kernel would kill the server instead.
        yield from ("--remount-ro", "/proc")
    elif any(root.path == "/" for root in confinement.writable):
        yield from ("--ro-bind", "/proc", "/proc")


class _Mounts:
    """What is opened and closed for one command, each path after those that it is in."""

    def __init__(self, confinement: Confinement, flavour: NamespaceSupport) -> None:
        self.placeholders: list[Placeholder] = []
        self.descriptors: list[int] = []
        self._confinement = confinement
        self._first = GATE_FD + 1 if confinement.has_gate else FILTER_FD + 1
        self._has_bind_fd = flavour.has_bind_fd

    def arguments(self) -> Iterator[str]:
        """Give the words for bubblewrap.

        Raises:
            Unprotectable: a path cannot be kept read-only, or is not what it was a moment ago.
        """
        rules = self._rules()
        for path in sorted(rules, key=lambda path: path.count("/")):
            yield from self._mount(path, rules[path])

    def abandon(self) -> None:
        """Let go of everything: no command is started."""
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
        tops = [root.path for root in roots]
        rules = dict.fromkeys((path for path in tops if path != "/"), "open")
        kept = [path for root in roots for path in root.read_only]
        for path in map(_keepable, (*kept, *confinement.protected)):
            if any(is_within(path, top) for top in tops) and _is_there(path, held):
                rules[path] = "cover" if _may_vanish(path, held) else "close"
        rules |= {path: "hide" for path in confinement.denied if Path(path).exists()}
        # A folder above a mount could be renamed, and another one could take its place.
        anchors = (
            anchor
            for path in rules
            for top in tops
            if path != top and is_within(path, top)
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

    def _open(self, path: str) -> tuple[str, ...]:
        """Mount what is there now: a command that runs could put a link in its place meanwhile."""
        if not self._has_bind_fd:
            return ("--bind", path, path)
        try:
            descriptor = open_place(path)
        except OSError as error:
            raise Unprotectable(f"{path} cannot be opened: {error.strerror}") from error
        self.descriptors.append(descriptor)
        return ("--bind-fd", str(self._first + len(self.descriptors) - 1), path)


def _is_open(path: str, rules: Mapping[str, str]) -> bool:
    """Whether the deepest rule above a path opens it; a root of everything has no rule."""
    above = next((rules[parent] for parent in parents(path) if parent in rules), "open")
    return path not in rules and above == "open"


def _keepable(path: str) -> str:
    """What has to be kept so that nothing can be made at a path, or in its place.

    That is the path itself, or the outermost folder on the way to it that is missing. A file on
    the way is kept instead, and so is a folder in which only a command could make something, after
    it has changed the mode.
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
    """Whether placeholders can be made in a root, or else nobody can make anything there.

    The owner of a folder that is read-only may change that from inside; such a root stays closed.
    """
    if os.access(root, os.W_OK):
        return True
    found = Path(root).stat()
    return not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid()


def _may_vanish(path: str, held: list[Placeholder]) -> bool:
    """Whether it is an empty folder of somebody else's: a placeholder that another program removes.

    To bind it would fail the command if that happens before bubblewrap gets there.
    """
    if any(placeholder.path == path for placeholder in held):
        return False
    with contextlib.suppress(OSError):
        return not Path(path).is_symlink() and next(Path(path).iterdir(), None) is None
    return False


def _is_there(path: str, held: list[Placeholder]) -> bool:
    """Whether there is something to be mounted over, after making it if need be."""
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
    """False for a link that a command could not replace anyway."""
    if is_out_of_reach(link):
        return False
    raise Unprotectable(f"{link} is a link, which a command could replace by a folder of its own")


def _filter(confinement: Confinement) -> int:
    """The seccomp program in a pipe, as bubblewrap reads it; far smaller than what a pipe holds."""
    reader, writer = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, reader)
        try:
            steps = program(network=confinement.network, has_gate=confinement.has_gate)
            os.write(writer, steps)
        finally:
            os.close(writer)
        stack.pop_all()
    return reader
