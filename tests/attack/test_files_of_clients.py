"""Files that clients write into a workspace cannot redirect them outside of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.execs import ANYWHERE, KNOWN, bench
from tests.harness.model_server import calls, says
from tests.harness.processes import TREADLE
from treadle.unattended.state import RunState

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
    state.symlink_to(target)
    RunState(prompt="x").save(state)
    assert target.read_text() == "precious"
    assert RunState.load(state, "x").prompt


@pytest.mark.parametrize("kind", ["pipe", "zero", "deep"])
def test_state_of_a_run_may_be_anything(tmp_path: Path, kind: str) -> None:
    state = tmp_path / "state.json"
    if kind == "pipe":
        os.mkfifo(state)
    elif kind == "zero":
        state.symlink_to("/dev/zero")
    else:
        state.write_text('{"x":' + "[" * 100_000)

    assert RunState.load(state, "x") == RunState.load(None, "x")


@pytest.mark.parametrize("content", ["[" * 100_000, " " * (16 * 1024 * 1024 + 1)])
async def test_an_output_schema_that_is_too_much_is_refused(tmp_path: Path, content: str) -> None:
    async with bench(TREADLE, tmp_path) as at:
        (at.cwd / "schema").write_text(content)
        ran = await at.run(*OPTIONS, "--output-schema", "schema", "go", replies=[])
        assert ran.exit_code == 1
        assert ran.stderr.splitlines()[-1].startswith("Output schema file schema is ")
