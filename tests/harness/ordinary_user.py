"""Run test files as an ordinary user when the suite itself runs as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

USER_ID = 65534
REPOSITORY = Path(__file__).parents[2]
# Interpreters often live in root's own home. The child gets its own mount namespace, in which that
# folder is covered by one that every user may enter and that holds the same folders.
_ENTER = """
set -e
top=$1 shelf=$2 places=$3
shift 3
number=0
for place in $places; do
    number=$((number + 1))
    mkdir -p "$shelf/$number"
    mount --bind "$place" "$shelf/$number"
done
mount -t tmpfs -o mode=755 none "$top"
number=0
for place in $places; do
    number=$((number + 1))
    mkdir -p "$place"
    mount --bind "$shelf/$number" "$place"
done
exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all "$@"
"""


def run_as_ordinary_user(test_files: Sequence[str], tmp_path: Path) -> None:
    """Run test files as the user `nobody` and require that their tests pass."""
    if os.geteuid() != 0:
        pytest.skip("the whole suite already runs as an ordinary user")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    prefix = _prefix(tmp_path)
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("root may not create a mount namespace here")
    kept = {name: os.environ[name] for name in ("PATH", "TREADLE_SOAK") if name in os.environ}
    with _folder() as folder:
        # Its plugin for pytest, which reports at the end, takes a second to import.
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
        options.append(f"--basetemp={folder}/run")
        done = subprocess.run(
            [*prefix, sys.executable, "-B", "-m", "pytest", *options, *test_files],
            cwd=REPOSITORY,
            env={**kept, "HOME": str(folder), "TMPDIR": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


@contextmanager
def _folder() -> Iterator[Path]:
    """Create a folder that the ordinary user owns and can reach."""
    with TemporaryDirectory(prefix="treadle-nobody-") as name:
        os.chown(name, USER_ID, USER_ID)
        yield Path(name)


def _prefix(tmp_path: Path) -> list[str]:
    """Return the words that, put before a command, run it as the ordinary user."""
    needed = list(dict.fromkeys([sys.base_prefix, sys.prefix, str(REPOSITORY)]))
    closed = [top for path in needed if (top := _closed_above(Path(path))) is not None]
    if not closed:
        return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    (tmp_path / "shelf").mkdir()
    tmp_path.chmod(0o755)
    behind = " ".join(path for path in needed if Path(path).is_relative_to(closed[0]))
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh"]
    return [*command, str(closed[0]), str(tmp_path / "shelf"), behind]


def _closed_above(path: Path) -> Path | None:
    """Return the outermost folder above a path that other users may not enter."""
    return next((top for top in reversed(path.parents) if not top.stat().st_mode & 0o001), None)
