"""Refuses to load code that changed after the server started.

Most modules are imported when they are first needed, long after commands began to run. A file that
changed meanwhile may be the work of a command, or of an update that does not fit the loaded
modules. The kernel sets the change time of a file, and no program without privileges can set it
back: a file whose change time lies before the start of the server is unchanged since then.

Compiled files are checked as well. A newer one is ignored, and its source is compiled.
Standard library only, and little of it: this is imported before the rest of the server.
"""

# No pathlib: its import would take longer than this whole module.
# ruff: noqa: PTH109, PTH116, PTH118, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import os
import sys
import time
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)

TYPE_CHECKING = False  # `typing` itself is imported later
if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.machinery import ModuleSpec
    from types import ModuleType


_HOOK_NAME = "path_hook_for_FileFinder"
_SECOND = 1_000_000_000
# Linux takes change times from CLOCK_REALTIME_COARSE, which `time` does not name: it advances
# once per tick, and the usual clock is some milliseconds ahead of it.
FILE_CLOCK = 5 if sys.platform == "linux" else time.CLOCK_REALTIME
_TICK = round(time.clock_getres(FILE_CLOCK) * _SECOND)


class CodeChanged(ImportError):
    """A file with code changed after the server started."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} changed after the server started; restart the server", path=path)


class CodeGuard:
    """Checks files with code against the time of its creation."""

    def __init__(self) -> None:
        self._started = _uptime_ns()

    def install(self) -> None:
        """Check everything that this process imports from now on."""
        _forget_working_folder()
        guard = self

        class Source(SourceFileLoader):
            """Reads source and compiled files that have not changed."""

            def get_data(self, path: str) -> bytes:
                return guard.read(path)

        class Sourceless(SourcelessFileLoader):
            """Reads compiled files without a source that have not changed."""

            def get_data(self, path: str) -> bytes:
                return guard.read(path)

        class Extension(ExtensionFileLoader):
            """Loads shared libraries that have not changed."""

            def create_module(self, spec: ModuleSpec) -> ModuleType:
                guard.read(self.path, only_if_newer=True)
                return super().create_module(spec)

        hook = FileFinder.path_hook(
            (Extension, EXTENSION_SUFFIXES),
            (Source, SOURCE_SUFFIXES),
            (Sourceless, BYTECODE_SUFFIXES),
        )
        others = [each for each in sys.path_hooks if getattr(each, "__name__", "") != _HOOK_NAME]
        sys.path_hooks[:] = [*others, hook]
        sys.path_importer_cache.clear()

    def read(self, path: str, *, only_if_newer: bool = False) -> bytes:
        """Read a file with code.

        Raises:
            OSError: it cannot be read, or it is a compiled file that is newer than the server.
            CodeChanged: it is a source or a library that is newer than the server.
        """
        if only_if_newer and not self._is_newer(os.stat(path)):
            return b""
        with open(path, "rb") as file:
            data = file.read()
            # After reading, to detect a change while we read.
            is_newer = self._is_newer(os.fstat(file.fileno()))
        if is_newer:
            if path.endswith(tuple(BYTECODE_SUFFIXES)):
                raise OSError(f"{path} is newer than the server")
            if not self._is_recorded(path, data):
                raise CodeChanged(path)
        return data

    def _is_newer(self, about: os.stat_result) -> bool:
        """Return whether a file changed after the start, by the current clock.

        A machine without a battery learns the time late. A change that lies in the future was made
        before the clock was set back.
        """
        now = time.clock_gettime_ns(FILE_CLOCK)
        # A change time is that of the last tick, which may lie before the start.
        started = now - (_uptime_ns() - self._started) - _TICK
        return started <= about.st_ctime_ns <= now + _SECOND

    def _is_recorded(self, path: str, data: bytes) -> bool:
        """Return whether an installer recorded this content: a new hard link also changes the time.

        Installers that share files between environments, such as uv, make hard links.
        """
        import base64
        import hashlib

        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        folder = os.path.dirname(path)
        while (above := os.path.dirname(folder)) != folder:
            if os.path.basename(folder) in ("site-packages", "dist-packages"):
                line = f"{os.path.relpath(path, folder)},sha256={digest},"
                return any(line in record for record in self._records(folder))
            folder = above
        return False

    def _records(self, folder: str) -> Iterable[str]:
        for name in os.listdir(folder):
            if not name.endswith(".dist-info"):
                continue
            try:
                with open(os.path.join(folder, name, "RECORD"), encoding="utf-8") as file:
                    text = file.read()
                    if not self._is_newer(os.fstat(file.fileno())):
                        yield text
            except (OSError, UnicodeDecodeError):
                continue


def read_code(importer: ModuleSpec, path: str) -> bytes:
    """Read a file with code as the importing module was read: checked, if imports are checked.

    Raises:
        OSError: it cannot be read, or it is a compiled file that is newer than the server.
        CodeChanged: it is a source that is newer than the server.
    """
    loader = importer.loader
    if isinstance(loader, SourceFileLoader):
        return loader.get_data(path)
    with open(path, "rb") as file:
        return file.read()


def _uptime_ns() -> int:
    """Return a clock that cannot be set, and that continues while the machine sleeps."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _forget_working_folder() -> None:
    """Import nothing from the folder in which the server was started, nor through links.

    `python -m` looks there first. The package itself has been found by now.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:
        here = ""
    is_first = not sys.flags.safe_path and sys.path[0] in ("", here)
    sys.path[:] = [os.path.realpath(entry) for entry in sys.path[is_first:] if entry]
    package = sys.modules[__name__.partition(".")[0]]
    package.__path__ = [os.path.realpath(entry) for entry in package.__path__]
