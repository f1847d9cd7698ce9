"""Confinement by Landlock, for machines that forbid namespaces.

A ruleset is created here and passed, as a descriptor, to the child that applies it. Landlock can
only add to what a folder allows, never remove from it. So where something in a writable folder must
stay closed, the folder itself is not opened, but each of its other entries: these may be changed,
but nothing new can be created beside them. This always applies to what a policy denies; to .git,
.codex and .agents only on request, since hardly any build, test or package manager works with it.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterator
from functools import cache
from typing import Final

from treadle.sandbox.backends.seccomp import ATTRIBUTES, IPC, MODES, program
from treadle.sandbox.paths import is_out_of_reach, is_within, open_place, real
from treadle.sandbox.policy import PLATFORM_FOLDERS, Confinement
from treadle.support.files.kinds import is_empty_folder

_CREATE_RULESET, _ADD_RULE = 444, 445
_VERSION_FLAG, _RULE_PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
# The rights that a rule on a file, not a folder, may have.
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# Creating a device would give access to the disk itself.
_NEVER_ALLOWED: Final = 1 << 6 | 1 << 11 | _IOCTL_DEV
_DEVICES: Final = tuple(f"/dev/{name}" for name in "null zero full random urandom tty".split())
# POSIX shared memory and semaphores, which are files.
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - no file of ours
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_TCP: Final = 3


_NOT_PROTECTED: Final = (
    ".git, .codex and .agents in writable folders are not protected: a command could plant a git "
    "hook or a setting there that takes effect outside the sandbox"
)
_NOTHING_NEW: Final = (
    "nothing new can be created directly in a folder that contains .git, .codex or .agents"
)
_NAMES_CAN_BE_MADE: Final = (
    "these names can be created in a writable folder that does not have them"
)
_ATTRIBUTES: Final = (
    "owners, modes and times of files anywhere can be changed if any folder is writable"
)
_SIGNALS: Final = "signals reach other processes of the user (Linux 6.12 prevents this)"


class LandlockMissing(Exception):
    """The kernel has no Landlock, or it is disabled."""


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def version() -> int:
    """Return the Landlock version of the kernel.

    Raises:
        LandlockMissing: it has none.
    """
    found = int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))
    if found < 1:
        raise LandlockMissing(os.strerror(ctypes.get_errno()))
    return found


def gaps(abi: int, *, protects: bool) -> tuple[str, ...]:
    """What a command could still do under this version of Landlock, for people."""
    found = (_NOTHING_NEW, _NAMES_CAN_BE_MADE) if protects else (_NOT_PROTECTED,)
    return (*found, _ATTRIBUTES) if abi >= 6 else (*found, _ATTRIBUTES, _SIGNALS)


def refused_calls(confinement: Confinement) -> tuple[str, ...]:
    """Return system calls that only a filter can block, since this Landlock does not cover them."""
    refused = [*ATTRIBUTES, *IPC]
    if version() < 3:
        refused.append("truncate")
    if not confinement.writable:
        refused += MODES
    return tuple(refused)


def filter_program(confinement: Confinement) -> bytes:
    """Return the seccomp program that goes with a ruleset."""
    return program(network=confinement.network, sees_others=True, also=refused_calls(confinement))


def ruleset(confinement: Confinement, *, protects: bool) -> int:
    """Create a ruleset; the caller closes its descriptor.

    `protects`: read-only paths in a writable folder stay so, whatever else that prevents.

    Raises:
        LandlockMissing: the kernel has none.
        OSError: the kernel rejects it.
    """
    abi = version()
    handled = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    attributes = struct.pack(
        "=QQQ",
        handled,
        0 if confinement.network else _TCP,
        _SCOPE_SIGNALS | (0 if confinement.network else _SCOPE_ABSTRACT_SOCKETS),
    )
    fd = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    try:
        for path, access in _rules(confinement, handled, protects=protects):
            _allow(fd, path, access)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _rules(confinement: Confinement, handled: int, *, protects: bool) -> Iterator[tuple[str, int]]:
    yield from _readable(confinement)
    for path in _DEVICES:
        yield path, _READ | _WRITE_FILE | (handled & (_TRUNCATE | _IOCTL_DEV))
    names = [path for root in confinement.writable for path in root.read_only] if protects else []
    closed = [path for path in (*names, *confinement.denied) if _needs_closing(path)]
    # Even an empty folder among these must stay as it is.
    closed += [path for path in confinement.protected if os.path.lexists(path)]
    # Devices are more than files: root owns those of the disks. A root that names them opens them.
    closed.append("/dev")
    for root in confinement.writable:
        for part in _without(root.path, [path for path in closed if path != root.path]):
            yield part, handled & ~_NEVER_ALLOWED
        if root.path == "/":
            yield _SHARED_MEMORY, handled & ~_NEVER_ALLOWED


def _readable(confinement: Confinement) -> Iterator[tuple[str, int]]:
    denied = list(confinement.denied)
    if confinement.readable is None:
        # Reading a terminal takes away what its user types. Root may read whole disks.
        for part in _without("/", [*denied, "/dev"]):
            yield part, _READ
        for part in _without(_SHARED_MEMORY, denied):
            yield part, _READ
        if not denied:
            yield "/", _READ_DIR
        return
    for path in confinement.readable:
        # The folders of the system may be links.
        place = real(path) if path in PLATFORM_FOLDERS else path
        for part in _without(place, denied):
            yield part, _READ


def _needs_closing(path: str) -> bool:
    """Return whether there is something that a command could damage.

    An empty folder could just as well be created where none is.
    """
    return os.path.lexists(path) and not is_empty_folder(path) and not is_out_of_reach(path)


def _without(folder: str, closed: list[str]) -> Iterator[str]:
    """Yield a folder, or its parts that contain nothing closed."""
    inner = [path for path in closed if is_within(path, folder)]
    if not inner:
        yield folder
        return
    if folder in inner:
        return
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.path for entry in entries if not entry.is_symlink())
    except OSError:
        return
    for path in names:
        yield from _without(path, inner)


def _allow(fd: int, path: str, access: int) -> None:
    try:
        # It must be what was checked. Only the system itself replaces its devices.
        is_device = path.startswith("/dev/")
        target = os.open(path, os.O_PATH | os.O_CLOEXEC) if is_device else open_place(path)
    except OSError:
        return  # a missing path needs no permission
    try:
        if not stat.S_ISDIR(os.fstat(target).st_mode):
            access &= _OF_FILES
        _call(_ADD_RULE, fd, _RULE_PATH_BENEATH, struct.pack("=Qi", access, target), 0)
    finally:
        os.close(target)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc().syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
