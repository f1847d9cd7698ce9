"""Which backend is chosen, and what is said when none works."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.sandbox.commands import run, workspace
from treadle.sandbox import backend as chosen
from treadle.sandbox.backend import Backend, SandboxUnavailable, find_backend
from treadle.sandbox.backends import Landlock
from treadle.sandbox.causes import explain_bubblewrap, explain_landlock
from treadle.sandbox.landlock import LandlockMissing
from treadle.sandbox.probe import Finding, findings

EVERYTHING = ("write outside", "TCP", "UDP", "abstract socket", "make .codex", "signal")


@pytest.fixture(autouse=True)
def undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was chosen before."""
    monkeypatch.setattr(chosen, "_chosen", [])


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs are looked for."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def no_landlock() -> int:
    raise LandlockMissing("Function not implemented")


async def found() -> dict[str, Finding]:
    return {finding.name: finding async for finding in findings()}


async def test_the_best_that_works_is_chosen_once(bubblewrap: Backend) -> None:
    chosen._chosen.clear()  # noqa: SLF001 - the fixture has chosen already
    first = await find_backend()
    assert first.name == "bubblewrap"
    assert await find_backend() is first


async def test_what_bubblewrap_refuses_was_seen_to_be_refused(bubblewrap: Backend) -> None:
    assert (await found())["bubblewrap"].refused == EVERYTHING


async def test_a_program_in_front_of_the_systems_own_is_not_taken_for_it(
    bubblewrap: Backend, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command could have put it there: into a virtual environment, say."""
    planted = programs / "bwrap"
    planted.write_text("#!/bin/sh\nexit 1\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f".:{programs}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.chdir(programs)
    assert (await found())["bubblewrap"].backend == bubblewrap


async def test_without_bubblewrap_landlock_is_chosen(
    programs: Path, working: dict[str, Backend]
) -> None:
    if "landlock" not in working:
        pytest.skip("landlock does not work here")
    assert await find_backend() == Landlock(protects=False)


async def test_landlock_protects_where_that_is_wished_for(
    programs: Path, working: dict[str, Backend]
) -> None:
    if "landlock" not in working:
        pytest.skip("landlock does not work here")
    chosen.wish(landlock_protects=True)
    try:
        assert await find_backend() == Landlock(protects=True)
        assert "nothing new can be made" in chosen.known_gaps()[0]
    finally:
        chosen.wish(landlock_protects=False)


async def test_a_bubblewrap_that_confines_nothing_is_found_out(programs: Path) -> None:
    """It runs the command, as a broken one might: what is tried must be refused, not only run."""
    fake = programs / "bwrap"
    fake.write_text(
        f"#!{sys.executable} -IS\nimport os, sys\n"
        "argv = sys.argv[sys.argv.index('--') + 1:]\nos.execv(argv[0], argv)\n"
    )
    fake.chmod(0o755)
    finding = (await found())["bubblewrap"]
    assert finding.backend is None
    assert "it let through: write outside, TCP, UDP, abstract socket, signal" in finding.reason


async def test_what_bubblewrap_complains_about_is_the_cause(programs: Path) -> None:
    fake = programs / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: out of cheese' >&2\nexit 1\n")
    fake.chmod(0o755)
    finding = (await found())["bubblewrap"]
    assert (finding.backend, finding.reason) == (None, "bwrap: out of cheese")


async def test_without_any_backend_commands_are_refused_in_clear_words(
    programs: Path, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.sandbox.landlock.version", no_landlock)
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
        hidden.setattr("treadle.sandbox.landlock.version", no_landlock)
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
            "the number of user namespaces",
        ),
        (
            "user/max_user_namespaces",
            "100",
            "bwrap: Creating new namespace failed: Operation not permitted",
            "namespaces are forbidden here, as in most containers",
        ),
    ],
)
def test_the_true_cause_is_named(
    tmp_path: Path, setting: str, value: str, complaint: str, cause: str
) -> None:
    (tmp_path / setting).parent.mkdir()
    (tmp_path / setting).write_text(f"{value}\n")
    reason, fix = explain_bubblewrap(complaint, tmp_path)
    assert reason.startswith(cause)
    assert complaint in reason
    assert fix


def test_a_kernel_without_landlock_and_one_that_has_it_off_are_told_apart() -> None:
    assert explain_landlock("Function not implemented") != explain_landlock(
        "Operation not supported"
    )
