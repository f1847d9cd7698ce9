"""Cgroups of commands: found where they were delegated, filled, and removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from treadle.sandbox.supervisor import command_cgroup
from treadle.sandbox.supervisor.delegation import _remove_stale, delegated_group

# In a separate process, which is moved into a cgroup and from there into a leaf.
SERVER = """
import asyncio, json, os, sys
from pathlib import Path
from treadle.sandbox.sandbox import Sandbox
from treadle.sandbox.supervisor.delegation import delegated_group
from treadle.sandbox.supervisor.client import Supervisor
from treadle.sandbox.limits import default_limits
from treadle.sandbox.policy import UNRESTRICTED
from treadle.sandbox.process import Process

base, controller = sys.argv[1:]
(Path(base) / "cgroup.procs").write_text("0")

def own():
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next(line for line in lines if line.startswith("0::")).removeprefix("0::")

async def main():
    found = {"before": own(), "crowded": None}
    beside = await asyncio.create_subprocess_exec("sleep", "60")
    found["crowded"] = str(delegated_group(frozenset({controller})))
    found["crowded left"] = own()
    beside.kill()
    await beside.wait()
    group = delegated_group(frozenset({controller}))
    found["group"], found["after"] = str(group), own()
    sandbox = Sandbox()
    sandbox.launcher._supervisor = Supervisor(group)
    printed = bytearray()
    process = await Process.start(
        sandbox, ["sh", "-c", "cat /proc/self/cgroup; setsid sleep 60 & setsid sleep 60 & wait"],
        cwd="/", env=dict(os.environ), confinement=UNRESTRICTED,
        on_output=lambda _stream, data: printed.extend(data), limits=default_limits())
    while b"0::" not in printed:
        await asyncio.sleep(0.01)
    folders = [path for path in group.iterdir() if path.is_dir() and path.name.isdigit()]
    found["commands"] = [path.name for path in folders]
    found["inside"] = printed.decode()
    process.kill()
    found["code"] = await process.wait()
    while any(path.name.isdigit() for path in group.iterdir()):
        await asyncio.sleep(0.01)
    found["left"] = sorted(path.name for path in group.iterdir() if path.is_dir())
    print(json.dumps(found))

asyncio.run(asyncio.wait_for(main(), 20))
"""


@pytest.fixture
def base() -> Iterator[tuple[Path, str]]:
    """Provide a cgroup that was delegated, and a controller that can be enabled below it."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    tops = [Path(line.split()[4]) for line in mounts if " - cgroup2 " in line]
    if os.geteuid() != 0 or not tops or not os.access(tops[0], os.W_OK):
        pytest.skip("no cgroup can be made here")
    controllers = (tops[0] / "cgroup.subtree_control").read_text().split() or (
        tops[0] / "cgroup.controllers"
    ).read_text().split()
    before = (tops[0] / "cgroup.subtree_control").read_text().split()
    if not controllers:
        pytest.skip("the kernel offers no controllers")
    controller = controllers[0]
    folder = tops[0] / f"test-{uuid4().hex}"
    folder.mkdir()
    try:
        with (tops[0] / "cgroup.subtree_control").open("w") as file:
            file.write(f"+{controller}")
    except OSError:
        folder.rmdir()
        pytest.skip("no controller can be enabled")
    try:
        yield folder, controller
    finally:
        _remove_tree(folder)
        if controller not in before:
            with suppress(OSError):  # another test uses it now
                (tops[0] / "cgroup.subtree_control").write_text(f"-{controller}")


def _remove_tree(folder: Path) -> None:
    """Remove cgroups, innermost first; the last process in one may be about to end."""
    deadline = time.monotonic() + 10
    while folder.exists():
        assert time.monotonic() < deadline, f"{folder} is busy"
        for name, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(name).rmdir()
        time.sleep(0.01)


def test_command_gets_a_cgroup_that_is_removed_with_it(base: tuple[Path, str]) -> None:
    folder, controller = base
    os.setxattr(folder, "trusted.delegate", b"1")
    arguments = [sys.executable, "-c", SERVER, str(folder), controller]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=40)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)

    assert report["crowded"] == "None", "another process was in the way and must stay where it is"
    assert report["crowded left"] == report["before"]
    assert Path(report["group"]).parent == folder
    assert report["after"] == f"{report['before']}/{Path(report['group']).name}/server"
    (command,) = report["commands"]
    assert f"0::{report['before']}/{Path(report['group']).name}/{command}\n" in report["inside"]
    assert report["code"] == 137
    assert report["left"] == ["server"]


def test_cgroup_that_was_not_delegated_is_left_unchanged(base: tuple[Path, str]) -> None:
    folder, controller = base
    script = (
        "import sys; from pathlib import Path\n"
        "from treadle.sandbox.supervisor.delegation import delegated_group\n"
        "(Path(sys.argv[1]) / 'cgroup.procs').write_text('0')\n"
        "print(delegated_group(frozenset({sys.argv[2]})), Path('/proc/self/cgroup').read_text())"
    )
    arguments = [sys.executable, "-c", script, str(folder), controller]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=40)

    assert done.stdout.startswith("None ")
    assert f"0::/{folder.name}\n" in done.stdout


def test_cgroups_of_servers_that_are_gone_are_removed(base: tuple[Path, str]) -> None:
    folder, _ = base
    started = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
    for name in (f"treadle-{os.getpid()}-1", f"treadle-{os.getpid()}-{started}", "treadle-x"):
        (folder / name / "5").mkdir(parents=True)
    _remove_stale(folder)

    left = sorted(path.name for path in folder.iterdir() if path.is_dir())
    assert left == sorted([f"treadle-{os.getpid()}-{started}", "treadle-x"])


def test_without_the_controllers_there_is_none() -> None:
    assert delegated_group(frozenset({"no such controller"})) is None


class TestEvents:
    """The kernel's files are in a plain folder here."""

    @pytest.fixture
    def group(self, tmp_path: Path) -> tuple[command_cgroup.Group, Path]:
        folder = tmp_path / str(os.getpid())
        folder.mkdir()
        for name in ("cgroup.procs", "cgroup.kill"):
            (folder / name).touch()
        (folder / "pids.events").write_text("max 0\n")
        (folder / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\n")
        limits = {"processes": 64, "memory": 1000, "nice": 5}
        return command_cgroup.Group(str(tmp_path), limits), folder

    def test_limits_are_set(self, group: tuple[command_cgroup.Group, Path]) -> None:
        made, folder = group

        assert made.enforced == {"processes", "memory"}
        names = ("pids.max", "memory.max", "memory.swap.max", "memory.oom.group")
        assert [(folder / name).read_text() for name in names] == ["64", "1000", "0", "1"]

    def test_reaching_a_limit_without_exceeding_it_does_not_count(
        self, group: tuple[command_cgroup.Group, Path]
    ) -> None:
        assert group[0].hit() is None

    @pytest.mark.parametrize(
        ("file", "text", "key"),
        [
            ("pids.events", "max 1\n", "processes"),
            ("memory.events", "max 9\noom 1\noom_kill 2\noom_group_kill 1\n", "memory"),
        ],
    )
    def test_event_of_the_kernel_names_the_limit(
        self, group: tuple[command_cgroup.Group, Path], file: str, text: str, key: str
    ) -> None:
        (group[1] / file).write_text(text)

        assert group[0].hit() == key

    def test_process_enters_and_everything_is_killed_by_one_write(
        self, group: tuple[command_cgroup.Group, Path]
    ) -> None:
        group[0].enter()
        group[0].kill()

        assert (group[1] / "cgroup.procs").read_text() == "0"
        assert (group[1] / "cgroup.kill").read_text() == "1"

    def test_folder_that_cannot_be_created_leaves_the_limits_to_the_guard(self) -> None:
        made = command_cgroup.Group("/nowhere", {"processes": 64})

        assert made.enforced == set()
        assert made.hit() is None
        made.enter()
        made.kill()
        made.remove()
