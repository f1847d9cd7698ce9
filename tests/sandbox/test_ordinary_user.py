"""The same sentences for an ordinary user, when the suite is run by root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

NOBODY = 65534
REPOSITORY = Path(__file__).parents[2]
# Interpreters often live in root's own home. In a mount namespace of its own, which ends with the
# child, that folder is covered by one that everybody may enter and that holds the same places.
ENTER = """
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


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the other user's, which he can reach."""
    with TemporaryDirectory(prefix="treadle-nobody-") as name:
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)


@pytest.fixture
def prefix(tmp_path: Path) -> list[str]:
    """What to put before a command so that the other user runs it."""
    needed = list(dict.fromkeys([sys.base_prefix, sys.prefix, str(REPOSITORY)]))
    closed = [top for path in needed if (top := _closed_above(Path(path))) is not None]
    if not closed:
        return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    (tmp_path / "shelf").mkdir()
    tmp_path.chmod(0o755)
    behind = " ".join(path for path in needed if Path(path).is_relative_to(closed[0]))
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]
    return [*command, str(closed[0]), str(tmp_path / "shelf"), behind]


def _closed_above(path: Path) -> Path | None:
    """The outermost folder above a path that others may not enter."""
    return next((top for top in reversed(path.parents) if not top.stat().st_mode & 0o001), None)


@pytest.mark.skipif(os.geteuid() != 0, reason="the whole suite is run by an ordinary user")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "name",
    [
        *("test_files", "test_protected", "test_network", "test_leftovers", "test_process"),
        *("test_roots", "test_kernel", "network/test_gate"),
    ],
)
def test_the_same_holds_for_an_ordinary_user(prefix: list[str], folder: Path, name: str) -> None:
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this root may not make a mount namespace")
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={folder}/run"]
    done = subprocess.run(
        [*prefix, sys.executable, "-B", "-m", "pytest", *options, f"tests/sandbox/{name}.py"],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
