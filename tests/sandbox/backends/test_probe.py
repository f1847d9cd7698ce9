"""Which backend is chosen, and what is reported when none works."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.harness.sandbox import SANDBOX, find_backend, findings, using
from tests.sandbox.commands import run, workspace
from treadle.config.configuration import Configuration
from treadle.protocol.base import JsonValue
from treadle.sandbox.backends import probe
from treadle.sandbox.backends.base import Bubblewrap, Landlock
from treadle.sandbox.backends.bubblewrap import NamespaceSupport
from treadle.sandbox.backends.causes import explain_bubblewrap, explain_landlock
from treadle.sandbox.backends.landlock import LandlockMissing
from treadle.sandbox.backends.probe import ProbeResult
from treadle.sandbox.backends.selection import Backend, SandboxUnavailable
from treadle.sandbox.sandbox import Sandbox
from treadle.sandbox.supervisor.launched import RunningCommand
from treadle.server.server import Server

EVERYTHING = ("write outside", "TCP", "UDP", "abstract socket", "make .codex", "signal")


@pytest.fixture(autouse=True)
def undecided() -> Iterator[None]:
    """Forget the earlier choice of a backend."""
    with using(None):
        yield


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder that is searched for programs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def no_landlock() -> int:
    raise LandlockMissing("Function not implemented")


async def probe_results() -> dict[str, ProbeResult]:
    return {finding.name: finding async for finding in findings()}


async def test_the_best_working_backend_is_chosen_once(bubblewrap: Backend) -> None:
    sandbox = Sandbox()
    try:
        first = await sandbox.find_backend()
        assert first.name == "bubblewrap"
        assert await sandbox.find_backend() is first
    finally:
        await sandbox.close()


async def test_refusals_by_bubblewrap_are_verified(bubblewrap: Backend) -> None:
    assert (await probe_results())["bubblewrap"].refused == EVERYTHING


async def test_a_program_before_the_systems_own_on_the_path_is_not_used(
    bubblewrap: Backend, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command could have put it there, for example into a virtual environment."""
    planted = programs / "bwrap"
    planted.write_text("#!/bin/sh\nexit 1\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f".:{programs}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.chdir(programs)
    assert (await probe_results())["bubblewrap"].backend == bubblewrap


async def test_without_bubblewrap_landlock_is_chosen(
    programs: Path, working: dict[str, Backend]
) -> None:
    if "landlock" not in working:
        pytest.skip("landlock does not work here")
    assert await find_backend() == Landlock(protects=False)


async def test_landlock_protects_where_configured(
    programs: Path, working: dict[str, Backend]
) -> None:
    if "landlock" not in working:
        pytest.skip("landlock does not work here")
    sandbox = Sandbox(landlock_protects=lambda: True)
    try:
        assert not sandbox.gaps
        assert await sandbox.find_backend() == Landlock(protects=True)
        assert "nothing new can be created" in sandbox.gaps[0]
    finally:
        await sandbox.close()


async def test_a_bubblewrap_that_confines_nothing_is_detected(programs: Path) -> None:
    """It runs the command, as a broken one might: attempts must be refused, not only run."""
    fake = programs / "bwrap"
    fake.write_text(
        f"#!{sys.executable} -IS\nimport os, sys\n"
        "argv = sys.argv[sys.argv.index('--') + 1:]\nos.execv(argv[0], argv)\n"
    )
    fake.chmod(0o755)
    finding = (await probe_results())["bubblewrap"]
    assert finding.backend is None
    assert "it let through: write outside, TCP, UDP, abstract socket, signal" in finding.reason


async def test_the_error_of_bubblewrap_is_the_cause(programs: Path) -> None:
    fake = programs / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: out of cheese' >&2\nexit 1\n")
    fake.chmod(0o755)
    finding = (await probe_results())["bubblewrap"]
    assert (finding.backend, finding.reason) == (None, "bwrap: out of cheese")


async def test_without_any_backend_commands_are_refused_with_a_reason(
    programs: Path, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.sandbox.backends.landlock.version", no_landlock)
    (programs / "true").symlink_to("/bin/true")
    with pytest.raises(SandboxUnavailable) as refused:
        await run(["true"], workspace(ws))
    assert refused.value.reason == (
        "no sandbox works here (bubblewrap: bwrap is not installed; "
        "landlock: this kernel has no Landlock, or a container hides it)"
    )
    assert refused.value.fix == ("install bubblewrap, for example: sudo apt-get install bubblewrap")


async def test_a_backend_that_appears_later_is_used(
    programs: Path, monkeypatch: pytest.MonkeyPatch, working: dict[str, Backend]
) -> None:
    if "landlock" not in working:
        pytest.skip("landlock does not work here")
    with monkeypatch.context() as hidden:
        hidden.setattr("treadle.sandbox.backends.landlock.version", no_landlock)
        with pytest.raises(SandboxUnavailable):
            await find_backend()
    assert (await find_backend()).name == "landlock"


@pytest.mark.parametrize(
    ("setting", "value", "complaint", "cause"),
    [
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "bwrap: setting up uid map: Permission denied",
            "AppArmor forbids",
        ),
        (
            "kernel/unprivileged_userns_clone",
            "0",
            "bwrap: No permissions to create new namespace",
            "the kernel forbids",
        ),
        (
            "user/max_user_namespaces",
            "0",
            "bwrap: Creating new namespace failed: No space left on device",
            "the limit of user namespaces",
        ),
        (
            "user/max_user_namespaces",
            "100",
            "bwrap: Creating new namespace failed: Operation not permitted",
            "namespaces are forbidden here, as in most containers",
        ),
    ],
)
def test_the_actual_cause_is_named(
    tmp_path: Path, setting: str, value: str, complaint: str, cause: str
) -> None:
    (tmp_path / setting).parent.mkdir()
    (tmp_path / setting).write_text(f"{value}\n")
    reason, fix = explain_bubblewrap(complaint, tmp_path)
    assert reason.startswith(cause)
    assert complaint in reason
    assert fix


def test_a_kernel_without_landlock_differs_from_one_that_has_it_off() -> None:
    assert explain_landlock("Function not implemented") != explain_landlock(
        "Operation not supported"
    )


async def test_missing_proc_is_named_as_a_gap(
    bubblewrap: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = [NamespaceSupport(has_proc=False)]
    monkeypatch.setattr(probe, "_flavours", lambda: iter(only))
    finding = (await probe_results())["bubblewrap"]
    assert finding.backend is not None
    assert finding.refused == EVERYTHING
    (gap,) = finding.gaps
    assert "list the processes of this machine" in gap


async def test_bubblewrap_without_descriptors_is_used_with_paths(
    bubblewrap: Backend, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = find_bubblewrap_program(bubblewrap)
    older = programs / "bwrap"
    older.write_text(
        f'#!/bin/sh\ncase "$*" in *--bind-fd*) echo "bwrap: Unknown option --bind-fd" >&2; '
        f'exit 1;; esac\nexec {real} "$@"\n'
    )
    older.chmod(0o755)
    finding = (await probe_results())["bubblewrap"]
    assert finding.backend == Bubblewrap(str(older), NamespaceSupport(has_bind_fd=False))
    assert ["--bind-fd" in gap for gap in finding.gaps] == [True]


def find_bubblewrap_program(backend: Backend) -> str:
    assert isinstance(backend, Bubblewrap)
    return backend.program


async def test_interpreter_that_needs_its_library_path_can_be_probed(
    bubblewrap: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(
        f'#!/bin/sh\n[ -n "$LD_LIBRARY_PATH" ] || exit 127\nexec {sys.executable} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(wrapper))
    monkeypatch.setattr(os, "environ", {"LD_LIBRARY_PATH": "/nonexistent"})
    assert (await probe_results())["bubblewrap"].backend is not None


async def test_nothing_in_the_environment_is_needed(
    bubblewrap: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {})
    assert (await probe_results())["bubblewrap"].refused == EVERYTHING


def test_folders_of_killed_probes_are_removed(tmp_path: Path) -> None:
    places = {name: tmp_path / f"treadle-probe-{name}" for name in ("orphan", "held", "new")}
    for place in places.values():
        (place / "inside" / ".codex").mkdir(parents=True)
        (place / "inside" / ".codex").chmod(0o1555)
    for name in ("orphan", "held"):
        os.utime(places[name], (1, 1))
    held = os.open(places["held"], os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    probe.remove_orphans(str(tmp_path))
    os.close(held)
    assert [name for name, place in places.items() if place.exists()] == ["held", "new"]


def test_what_a_command_left_in_place_of_a_killed_probe_is_not_removed(tmp_path: Path) -> None:
    """Removing a million files on the event loop, at each start, would take half a minute."""
    place = tmp_path / "treadle-probe-attack"
    deep = place / "inside" / "deep" / "er"
    deep.mkdir(parents=True)
    for number in range(3):
        (place / "inside" / str(number)).touch()
    os.utime(place, (1, 1))

    probe.remove_orphans(str(tmp_path))

    assert sorted(path.name for path in place.rglob("*")) == ["0", "1", "2", "deep", "er", "inside"]


def test_a_link_in_a_killed_probe_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "of the user"
    (outside / ".codex").mkdir(parents=True)
    (outside / "a").touch()
    place = tmp_path / "treadle-probe-attack"
    place.mkdir()
    (place / "inside").symlink_to(outside)
    os.utime(place, (1, 1))

    probe.remove_orphans(str(tmp_path))

    assert sorted(path.name for path in outside.iterdir()) == [".codex", "a"]


def test_few_of_many_folders_of_killed_probes_are_removed_at_once(tmp_path: Path) -> None:
    for number in range(150):
        (tmp_path / f"treadle-probe-{number}").mkdir()
        os.utime(tmp_path / f"treadle-probe-{number}", (1, 1))

    probe.remove_orphans(str(tmp_path))

    assert len(list(tmp_path.glob("treadle-probe-*"))) == 50


async def test_a_server_tests_backends_where_no_command_can_falsify_the_result(
    bubblewrap: Backend, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may write in the folder for temporary files: it made the next server use less."""
    temporary = home.parent / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    launch = Bubblewrap.launch

    async def attacked(self: Bubblewrap, argv: Sequence[str], **more: JsonValue) -> RunningCommand:
        folder = Path(more["cwd"]).parent
        if folder.is_relative_to(temporary):
            (folder / "outside").rename(folder / "moved")
            (folder / "outside").symlink_to("inside")
        return await launch(self, argv, **more)

    monkeypatch.setattr(Bubblewrap, "launch", attacked)
    server = Server(configuration=Configuration(home))
    try:
        found = await server.sandbox.find_backend()
    finally:
        await server.close()

    assert (found.name, found.gaps) == (bubblewrap.name, bubblewrap.gaps)
    assert not [name for name in os.listdir(home) if name.startswith("treadle-probe-")]  # noqa: PTH208


async def test_backends_are_tested_elsewhere_if_the_home_is_missing(
    bubblewrap: Backend, tmp_path: Path
) -> None:
    results = probe.findings(SANDBOX.launcher, folder=tmp_path / "missing")
    found = [finding async for finding in results if finding.name == "bubblewrap"]
    assert [finding.backend for finding in found] == [bubblewrap]
