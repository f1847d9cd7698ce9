"""Code that changed after the start of a process is not loaded into it."""

from __future__ import annotations

import base64
import hashlib
import os
import py_compile
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import treadle
from treadle.support.code_guard import FILE_CLOCK

SOURCES = Path(treadle.__file__).parents[1]
# Runs with a guard: a line on stdin says that the files are ready.
PROGRAM = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from treadle.support.code_guard import CodeGuard
CodeGuard().install()
print("ready", flush=True)
sys.stdin.readline()
for name in sys.argv[3:]:
    try:
        print(name, __import__(name).VALUE)
    except ImportError as error:
        print(name, type(error).__name__)
"""


class Guarded:
    """A process with a guard that waits before it imports."""

    def __init__(self, folder: Path, *names: str) -> None:
        command = [sys.executable, "-B", "-c", PROGRAM, str(SOURCES), str(folder), *names]
        _let_the_file_clock_advance()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def go_on(self) -> list[str]:
        """Let it import, and return its report about each module."""
        output, _ = self._process.communicate("\n", timeout=30)
        return output.splitlines()


def _let_the_file_clock_advance() -> None:
    """Make what was written before older than a process that starts now.

    Times of files have the resolution of a tick, and an interpreter may start within one.
    """
    begun = time.clock_gettime_ns(FILE_CLOCK)
    tick = round(time.clock_getres(FILE_CLOCK) * 1e9)
    while time.clock_gettime_ns(FILE_CLOCK) <= begun + 2 * tick:
        os.sched_yield()


def test_unchanged_module_is_loaded_and_changed_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "same.py").write_text("VALUE = 1\n")
    (tmp_path / "other.py").write_text("VALUE = 1\n")
    guarded = Guarded(tmp_path, "same", "other", "new")
    with (tmp_path / "other.py").open("a") as file:
        file.write("VALUE = 2\n")
    os.utime(tmp_path / "other.py", (1, 1))
    (tmp_path / "new.py").write_text("VALUE = 3\n")
    assert guarded.go_on() == ["same 1", "other CodeChanged", "new CodeChanged"]


def test_compiled_file_that_is_newer_is_ignored(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("VALUE = 1\n")
    about = source.stat()
    guarded = Guarded(tmp_path, "module")
    planted = tmp_path / "elsewhere" / "module.py"
    planted.parent.mkdir()
    planted.write_text("VALUE = 2\n")
    os.utime(planted, ns=(about.st_atime_ns, about.st_mtime_ns))
    cache = tmp_path / "__pycache__" / f"module.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(planted), cfile=str(cache), doraise=True)
    assert guarded.go_on() == ["module 1"]


def test_older_compiled_file_is_used(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("VALUE = 1\n")
    py_compile.compile(str(tmp_path / "module.py"), doraise=True)
    assert Guarded(tmp_path, "module").go_on() == ["module 1"]


def test_library_that_changed_is_not_loaded(tmp_path: Path) -> None:
    found = __import__("_ctypes").__file__
    if found is None:
        pytest.skip("this interpreter has no shared libraries")
    library = tmp_path / Path(found).name
    shutil.copy(found, library)
    guarded = Guarded(tmp_path, "_ctypes")
    library.chmod(0o700)
    assert guarded.go_on() == ["_ctypes CodeChanged"]


@pytest.mark.parametrize("is_changed", [False, True])
def test_new_hard_link_of_an_installed_file_does_not_count(
    tmp_path: Path, is_changed: bool
) -> None:
    """An installer that shares files between environments creates one at each installation."""
    folder = tmp_path / "site-packages"
    (folder / "thing-1.dist-info").mkdir(parents=True)
    source = folder / "thing.py"
    source.write_text("VALUE = 1\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(source.read_bytes()).digest())
    record = f"thing.py,sha256={digest.rstrip(b'=').decode()},10\n"
    (folder / "thing-1.dist-info" / "RECORD").write_text(record)
    guarded = Guarded(folder, "thing")
    (tmp_path / "link.py").hardlink_to(source)
    if is_changed:
        (tmp_path / "link.py").write_text("VALUE = 2\n")
    assert guarded.go_on() == ["thing CodeChanged" if is_changed else "thing 1"]


def test_folder_of_a_link_cannot_be_exchanged(tmp_path: Path) -> None:
    for name in ("real", "planted"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text(f"VALUE = {name!r}\n")
    (tmp_path / "link").symlink_to("real")
    guarded = Guarded(tmp_path / "link", "module")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("planted")
    assert guarded.go_on() == ["module real"]
