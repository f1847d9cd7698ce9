"""Files that clients write into a workspace cannot redirect them outside of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.harness.execs import ANYWHERE, KNOWN, bench
from tests.harness.model_server import calls, says
from tests.harness.processes import TREADLE, environment
from treadle.unattended.state import RunState, StateFile

OPTIONS = (ANYWHERE, *KNOWN, "-s", "workspace-write")


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("last.md", "ln -s {target} last.md"),
        ("out/last.md", "ln -s {folder} out"),
        ("last.md", "ln -s second last.md; ln -s {target} second"),
    ],
)
async def test_last_message_does_not_follow_a_link_made_by_a_command(
    tmp_path: Path, outside: Path, name: str, script: str
) -> None:
    async with bench(TREADLE, tmp_path) as at:
        target = outside / "last.md"
        target.write_text("precious")
        command = script.format(target=target, folder=outside)
        replies = [calls("exec_command", {"cmd": command}, "c1"), says("planted")]
        ran = await at.run(*OPTIONS, "-o", name, "go", replies=replies)
        assert any(path.is_symlink() for path in at.cwd.iterdir())
        assert (ran.exit_code, target.read_text()) == (0, "precious")
        assert "a link that a sandboxed command may have made" in ran.stderr
        # The next run meets the link that this one left.
        await at.run(*OPTIONS, "-o", name, "go", replies=[says("planted")])
        assert target.read_text() == "precious"


async def test_last_message_does_not_wait_for_a_pipe_made_by_a_command(tmp_path: Path) -> None:
    async with bench(TREADLE, tmp_path) as at:
        replies = [calls("exec_command", {"cmd": "mkfifo last.md"}, "c1"), says("done")]
        ran = await at.run(*OPTIONS, "-o", "last.md", "go", replies=replies)
        assert (ran.exit_code, "Failed to write last message file" in ran.stderr) == (0, True)


async def test_name_of_the_last_message_does_not_control_the_terminal(tmp_path: Path) -> None:
    async with bench(TREADLE, tmp_path) as at:
        name = "missing/x\x1b[2J\u202e\nDone."
        ran = await at.run(*OPTIONS, "-o", name, "go", replies=[says("done")])
    shown = "missing/x\\x1b[2J\\u202e\\nDone."
    assert f"Failed to write last message file {shown}: No such file" in ran.stderr


async def test_last_message_follows_links_made_by_the_user(tmp_path: Path) -> None:
    async with bench(TREADLE, tmp_path) as at:
        (tmp_path / "mine").mkdir()
        (tmp_path / "link").symlink_to("mine")
        name = str(tmp_path / "link" / "last.md")
        await at.run(ANYWHERE, *KNOWN, "-s", "read-only", "-o", name, "go", replies=[says("done")])
        assert (tmp_path / "mine" / "last.md").read_text() == "done"


def test_state_of_a_run_is_not_written_through_a_link(tmp_path: Path, outside: Path) -> None:
    target, state = outside / "config.toml", tmp_path / "state.json"
    target.write_text("precious")
    (tmp_path / f".{state.name}.{os.getpid()}").symlink_to(target)
    file = StateFile(state)
    state.symlink_to(target)
    file.save(RunState(prompt="x", turns=3))
    assert target.read_text() == "precious"
    assert json.loads(state.read_text())["turns"] == 3


def test_state_of_a_run_is_not_written_below_a_link_that_appears(
    tmp_path: Path, outside: Path
) -> None:
    folder = tmp_path / "build"
    folder.mkdir()
    file = StateFile(folder / "state.json")
    folder.rmdir()
    folder.symlink_to(outside)
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        file.save(RunState(prompt="x"))
    assert not list(outside.iterdir())


def test_state_that_another_program_wrote_is_not_believed(tmp_path: Path) -> None:
    """It could name any thread, or say that the run is done."""
    path = tmp_path / "state.json"
    file = StateFile(path)
    state = file.load("x")
    new = RunState(prompt=state.prompt)
    state.thread_id, state.turns = "mine", 2
    for _ in range(2):
        file.save(state)
    kept = StateFile(path).load("x")
    assert (kept.thread_id, kept.turns) == ("mine", 2)

    copy = tmp_path / "copy.json"
    copy.write_bytes(path.read_bytes())
    assert StateFile(copy).load("x") == new
    path.write_bytes(path.read_bytes().replace(b"mine", b"free"))
    assert StateFile(path).load("x") == new


def test_state_is_known_after_a_crash_while_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    file = StateFile(path)
    file.save(RunState(prompt=file.load("x").prompt, turns=1))

    def crash(*_arguments: object, **_options: object) -> None:
        raise OSError

    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", crash)
        with pytest.raises(OSError, match=r"^$"):
            file.save(RunState(prompt="y", turns=2))
    assert StateFile(path).load("x").turns == 1
    assert [each.name for each in tmp_path.glob("*state.json*")] == ["state.json"]


def test_run_refuses_a_state_below_a_link_of_the_workspace(
    home: Path, workspace: Path, outside: Path
) -> None:
    """A command of an earlier run may have made it."""
    (workspace / "build").symlink_to(outside)
    ran = subprocess.run(
        [TREADLE, "run", "--unattended", "--state", "build/state.json", "go"],
        cwd=workspace,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (ran.returncode, list(outside.iterdir())) == (2, [])
    assert "has a link that a sandboxed command may have made" in ran.stderr


@pytest.mark.parametrize("kind", ["pipe", "zero", "deep"])
def test_state_of_a_run_may_be_anything(tmp_path: Path, kind: str) -> None:
    state = tmp_path / "state.json"
    if kind == "pipe":
        os.mkfifo(state)
    elif kind == "zero":
        state.symlink_to("/dev/zero")
    else:
        state.write_text('{"x":' + "[" * 100_000)

    assert StateFile(state).load("x") == StateFile(None).load("x")


@pytest.mark.parametrize("content", ["[" * 100_000, " " * (16 * 1024 * 1024 + 1)])
async def test_an_output_schema_that_is_too_much_is_refused(tmp_path: Path, content: str) -> None:
    async with bench(TREADLE, tmp_path) as at:
        (at.cwd / "schema").write_text(content)
        ran = await at.run(*OPTIONS, "--output-schema", "schema", "go", replies=[])
        assert ran.exit_code == 1
        assert ran.stderr.splitlines()[-1].startswith("Output schema file schema is ")
