"""A cgroup for one command: the kernel counts its processes and memory, and kills it as a whole.

If the server has a delegated cgroup (`delegation.py`), the guard creates one below it for each
command. The guard itself checks the limits that the kernel does not enforce there.
"""

# Part of the supervisor program: few imports, and nothing of this package.
# ruff: noqa: PTH102, PTH106, PTH123

from __future__ import annotations

import contextlib
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select

# A cgroup is busy for a moment after its last process has ended.
_TRIES, _PAUSE_SECONDS = 50, 0.01
# The kernel's limit file, its events file, and the line that counts violations.
_KINDS = {
    "processes": ("pids.max", "pids.events", b"max"),
    "memory": ("memory.max", "memory.events", b"oom_kill"),
}


class Group:
    """The cgroup of one command; without one, the methods do nothing."""

    def __init__(self, parent: str | None, limits: dict[str, int]) -> None:
        self._path: str | None = None
        self._enter: int | None = None
        # For each limit that the kernel enforces, the descriptor of its events.
        self._events: dict[str, int] = {}
        if parent is None:
            return
        with contextlib.suppress(OSError):
            path = f"{parent}/{os.getpid()}"
            with contextlib.suppress(FileExistsError):  # left by a guard that could not remove it
                os.mkdir(path)
            self._path = path
            self._enter = os.open(f"{path}/cgroup.procs", os.O_WRONLY)
            for key in _KINDS.keys() & limits.keys():
                self._set(key, limits[key])

    def _set(self, key: str, limit: int) -> None:
        file, events, _name = _KINDS[key]
        with contextlib.suppress(OSError):
            _write(f"{self._path}/{file}", limit)
            self._events[key] = os.open(f"{self._path}/{events}", os.O_RDONLY)
            os.read(self._events[key], 4096)  # discard earlier events
        if key == "memory":
            # Forbid swap, and kill the command as a whole.
            for other, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
                with contextlib.suppress(OSError):
                    _write(f"{self._path}/{other}", value)

    @property
    def enforced(self) -> set[str]:
        """The limits that the kernel enforces and the guard need not check."""
        return set(self._events)

    def enter(self) -> None:
        """Move the calling process into the cgroup; its descendants will be there too."""
        if self._enter is not None:
            with contextlib.suppress(OSError):
                os.write(self._enter, b"0")

    def register(self, poll: select.poll) -> None:
        """Wake up when a limit is hit; free while none is."""
        for fd in self._events.values():
            poll.register(fd, 2)  # POLLPRI

    def hit(self) -> str | None:
        """Return the limit that was hit, if any."""
        for key, fd in self._events.items():
            with contextlib.suppress(OSError, ValueError):
                words = os.pread(fd, 4096, 0).split()
                counts = dict(zip(words[::2], words[1::2], strict=False))
                if int(counts.get(_KINDS[key][2], 0)) > 0:
                    return key
        return None

    def kill(self) -> None:
        """Kill everything in it at once, faster than any fork bomb."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                _write(f"{self._path}/cgroup.kill", 1)

    def remove(self) -> None:
        """Remove the cgroup, which is empty or will be in a moment."""
        for _ in range(_TRIES if self._path is not None else 0):
            try:
                os.rmdir(self._path or "")
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(_PAUSE_SECONDS)
            else:
                break


def _write(path: str, value: int) -> None:
    with open(path, "wb", 0) as file:
        file.write(str(value).encode())
