"""The supervisor program: what it is made of, and what it reports when it cannot go on."""

from __future__ import annotations

import ast
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.sandbox.supervisor import client, program
from treadle.sandbox.supervisor.client import Supervisor, SupervisorGone
from treadle.sandbox.supervisor.launched import Descriptors

FOLDER = Path(program.__file__).parent
# The supervisor has some ten descriptors when a guard begins, and the guard opens a few more.
FEW = range(8, 40)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    """A supervisor of this test only."""
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


async def outcome(supervisor: Supervisor, folder: Path) -> int | str:
    """Run a command; return its exit code, or the name of the error."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        fds = Descriptors(null, null, null)
        child = await supervisor.launch(["/bin/true"], cwd=str(folder), env={}, fds=fds)
        return await child.exited
    except SupervisorGone:
        return "gone"
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        os.close(null)


def has_ended(pid: int) -> bool:
    """Return whether a child has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_a_guard_without_descriptors_reports_that_and_the_next_command_runs(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """Without a report the command would seem to have been killed, or the supervisor to be gone."""
    usual = resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE)
    seen = set()
    for limit in reversed(FEW):
        resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, (limit, usual[1]))
        seen.add(found := await outcome(supervisor, tmp_path))
        if found == "EMFILE":
            break
        assert found == 0 or has_ended(supervisor.pid), f"{found} with {limit} descriptors"

    assert seen == {0, "EMFILE"}
    resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, usual)
    assert await outcome(supervisor, tmp_path) == 0


def test_every_file_that_the_program_imports_is_checked_before_it_starts() -> None:
    """A command could otherwise change the one that is left out, where it may write."""
    found: set[str] = set()
    waiting = ["program.py"]
    while waiting:
        tree = ast.parse((FOLDER / waiting.pop()).read_text())
        names = [
            each.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for each in node.names
        ]
        new = {f"{name}.py" for name in names if (FOLDER / f"{name}.py").exists()} - found
        found |= new
        waiting += new

    assert sorted(client._BESIDE) == sorted(found)  # noqa: SLF001 - not part of any interface
