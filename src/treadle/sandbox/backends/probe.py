"""Tests each backend: attempts what must be refused and what must work."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from treadle.sandbox.backends import landlock
from treadle.sandbox.backends.base import Bubblewrap, Landlock, Seatbelt
from treadle.sandbox.backends.bubblewrap import NamespaceSupport
from treadle.sandbox.backends.bubblewrap_program import find_bubblewrap
from treadle.sandbox.backends.causes import explain_bubblewrap, explain_landlock
from treadle.sandbox.backends.seccomp import UnknownMachine
from treadle.sandbox.backends.selection import Backend, BackendName, SandboxUnavailable
from treadle.sandbox.policy import Confinement, WritableRoot
from treadle.sandbox.supervisor.launch import CommandLauncher
from treadle.sandbox.supervisor.launched import Descriptors
from treadle.support.files.descriptors import is_shortage

_SECONDS: Final = 20.0
_PREFIX: Final = "treadle-probe-"
_INSIDE, _OUTSIDE = "inside", "outside"
_NOT_WRITABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
_MAX_ENTRIES, _MAX_ORPHANS = 10_000, 100
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Prints every attempt that succeeds. In a new namespace, a small process id would name another
# process.
_ATTEMPTS: Final = """
import _socket as s, os, sys
inside, outside, port, name, pid = sys.argv[1:]
def attempt(word, action):
    try:
        action()
    except OSError:
        return
    print(word)
def connect(family, address):
    s.socket(family, s.SOCK_STREAM).connect(address)
attempt("write inside", lambda: os.close(os.open(inside + "/a", os.O_CREAT | os.O_WRONLY)))
attempt("write outside", lambda: os.close(os.open(outside + "/a", os.O_CREAT | os.O_WRONLY)))
attempt("make .codex", lambda: os.mkdir(inside + "/.codex"))
attempt("TCP", lambda: connect(s.AF_INET, ("127.0.0.1", int(port))))
attempt("UDP", lambda: s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(port))))
attempt("abstract socket", lambda: connect(s.AF_UNIX, chr(0) + name))
if int(pid) > 100:
    attempt("signal", lambda: os.kill(int(pid), 0))
"""
_MUST_WORK: Final = "write inside"
_MUST_FAIL: Final = ("write outside", "TCP", "UDP", "abstract socket")
_SHOULD_FAIL: Final = ("make .codex", "signal")


class ProbeResult(Struct, frozen=True):
    """The result of testing one backend."""

    name: BackendName
    backend: Backend | None = None
    # The attempts that were refused.
    refused: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    reason: str = ""
    fix: str = ""


class _Bench(Struct, frozen=True):
    """What starts the attempts, and the folder to make theirs in, if it is not a temporary one."""

    launcher: CommandLauncher
    folder: Path | None


async def findings(
    launcher: CommandLauncher, *, landlock_protects: bool = False, folder: Path | None = None
) -> AsyncIterator[ProbeResult]:
    """Test one backend after the other, the best first.

    A running command could falsify the tests if it could write in the folder where they are made.
    """
    bench = _Bench(launcher, folder)
    if sys.platform == "darwin":
        yield await _try(bench, Seatbelt())
    else:
        yield await _bubblewrap(bench)
        yield await _landlock(bench, protects=landlock_protects)


async def _bubblewrap(bench: _Bench) -> ProbeResult:
    program = find_bubblewrap()
    if program is None:
        reason, fix = explain_bubblewrap("")
        return ProbeResult("bubblewrap", reason=reason, fix=fix)
    found = ProbeResult("bubblewrap")
    has_bind_fd = True
    for flavour in _flavours():
        found = await _try(bench, Bubblewrap(program, replace(flavour, has_bind_fd=has_bind_fd)))
        if has_bind_fd and "--bind-fd" in found.reason:
            has_bind_fd = False
            found = await _try(bench, Bubblewrap(program, replace(flavour, has_bind_fd=False)))
        if found.backend is not None:
            return found
    reason, fix = explain_bubblewrap(found.reason)
    return ProbeResult("bubblewrap", refused=found.refused, reason=reason, fix=fix)


def _flavours() -> Iterator[NamespaceSupport]:
    yield NamespaceSupport()
    # Containers often hide parts of /proc; the kernel then forbids mounting another one.
    yield NamespaceSupport(has_proc=False)
    if os.geteuid() == 0:
        yield NamespaceSupport(has_user=False)


async def _landlock(bench: _Bench, *, protects: bool) -> ProbeResult:
    try:
        landlock.version()
    except landlock.LandlockMissing as error:
        reason, fix = explain_landlock(str(error))
        return ProbeResult("landlock", reason=reason, fix=fix)
    found = await _try(bench, Landlock(protects))
    if found.backend is None:
        reason, fix = explain_landlock(found.reason)
        return ProbeResult("landlock", refused=found.refused, reason=reason, fix=fix)
    return found


async def _try(bench: _Bench, backend: Backend) -> ProbeResult:
    try:
        worked, complaint = await _attempt(bench, backend)
    except (OSError, TimeoutError, SandboxUnavailable, UnknownMachine) as error:
        if is_shortage(error):
            raise  # this is not about the backend, and the next one may be weaker
        return ProbeResult(backend.name, reason=str(error) or type(error).__name__)
    refused = tuple(word for word in (*_MUST_FAIL, *_SHOULD_FAIL) if word not in worked)
    # Landlock lists these among its gaps.
    forbidden = _MUST_FAIL if backend.name == "landlock" else (*_MUST_FAIL, *_SHOULD_FAIL)
    leaks = [word for word in forbidden if word in worked]
    if _MUST_WORK not in worked:
        return ProbeResult(backend.name, refused=refused, reason=complaint or "nothing ran in it")
    if leaks:
        return ProbeResult(
            backend.name, refused=refused, reason=f"it let through: {', '.join(leaks)}"
        )
    return ProbeResult(backend.name, backend, refused, backend.gaps)


async def _attempt(bench: _Bench, backend: Backend) -> tuple[set[str], str]:
    """Run the attempts in a sandbox; return those that succeeded, and the error output."""
    with ExitStack() as stack:
        inside, outside = _folders(stack, bench.folder)
        port, name = _listen(stack)
        output = stack.enter_context(tempfile.TemporaryFile())
        complaints = stack.enter_context(tempfile.TemporaryFile())
        null = os.open(os.devnull, os.O_RDONLY)
        stack.callback(os.close, null)
        words = [inside, outside, str(port), name, str(os.getpid())]
        child = await backend.launch(
            [sys.executable, "-I", "-S", "-c", _ATTEMPTS, *words],
            cwd=inside,
            # Some interpreters do not find their library without this.
            env={k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"},
            confinement=Confinement((WritableRoot(inside, (f"{inside}/.codex",)),)),
            fds=Descriptors(null, output.fileno(), complaints.fileno()),
            launcher=bench.launcher,
        )
        try:
            async with asyncio.timeout(_SECONDS):
                await asyncio.shield(child.exited)
        finally:
            child.kill()
        output.seek(0)
        complaints.seek(0)
        return set(output.read().decode().splitlines()), complaints.read().decode().strip()


def _folders(stack: ExitStack, parent: Path | None) -> tuple[str, str]:
    """One writable folder, and one beside it that we may write and the attempts may not."""
    folder = stack.enter_context(_temporary(parent))
    # Locked until the end: an unlocked folder was left by a killed process.
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, held)
    with suppress(BlockingIOError):
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    inside, outside = Path(folder, _INSIDE).resolve(), Path(folder, _OUTSIDE).resolve()
    inside.mkdir()
    outside.mkdir()
    return str(inside), str(outside)


def _temporary(parent: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Make a folder; a server whose home is read-only tests in the system's folder."""
    if parent is not None:
        remove_orphans(str(parent))
        try:
            return tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent)
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
    remove_orphans(tempfile.gettempdir())
    return tempfile.TemporaryDirectory(prefix=_PREFIX)


def remove_orphans(parent: str) -> None:
    """Remove the folders of killed probes, except those of other users.

    Commands can write there too, so this examines a limited number of entries, and removes only
    what a probe makes.
    """
    with suppress(OSError), os.scandir(parent) as entries:
        known = islice(entries, _MAX_ENTRIES)
        found = (entry.path for entry in known if entry.name.startswith(_PREFIX))
        for path in [*islice(found, _MAX_ORPHANS)]:
            with suppress(OSError):
                _remove_orphan(path)


def _remove_orphan(path: str) -> None:
    descriptor = os.open(path, _FOLDER)
    try:
        about = os.fstat(descriptor)
        # A probe needs a moment to lock its new folder.
        is_new = time.time() - about.st_mtime < _SECONDS
        if about.st_uid == os.geteuid() and not is_new:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in (_INSIDE, _OUTSIDE):
                _remove_part(name, descriptor)
            Path(path).rmdir()
    finally:
        os.close(descriptor)


def _remove_part(name: str, folder: int) -> None:
    """Remove one of the folders of a probe, which may be missing."""
    with suppress(FileNotFoundError):
        part = os.open(name, _FOLDER, dir_fd=folder)
        try:
            with suppress(FileNotFoundError):
                os.unlink("a", dir_fd=part)
            with suppress(FileNotFoundError):
                os.rmdir(".codex", dir_fd=part)
        finally:
            os.close(part)
        os.rmdir(name, dir_fd=folder)


def _listen(stack: ExitStack) -> tuple[int, str]:
    """Open real listeners: a refusal without a listener would prove nothing."""
    tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    name = f"treadle-probe-{os.getpid()}-{id(tcp)}"
    if os.uname().sysname == "Linux":
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{name}")
        abstract.listen()
    return tcp.getsockname()[1], name
