"""Commands that run outside the sandbox unattended start no program that a sandboxed one planted.

An `allow` rule runs a command without approval, and a client may approve read-only commands
automatically. No user then checks which program a name resolves to, or the shell's startup files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attack.test_planted_settings import NO_TEMPORARY_FOLDERS, program, rule, run_in
from tests.harness.commands import Bench, bench, commands
from tests.harness.threads import Client
from tests.harness.ticks import wait_for_tick
from tests.sandbox.commands import names
from treadle.client._runtime.safety import only_reads
from treadle.engine.terminals.shell import reads_startup_files, without_startup_files
from treadle.protocol.base import JsonValue

APPROVAL = "item/commandExecution/requestApproval"


@dataclass
class Scene:
    """A server whose user has a home folder, a folder with tools, and a folder out of reach."""

    bench: Bench
    user: Path
    tools: Path
    outside: Path

    @property
    def evil(self) -> str:
        """Return a script that creates a file where no sandboxed command can."""
        return f"echo evil; echo x > {self.outside}/planted"

    async def run(self, cwd: Path, script: str, *, login: bool = True) -> str:
        return await run_in(self.bench, cwd, script, login=login)


@pytest.fixture
async def scene(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Provide a rule that allows `mine`, a legitimate program of that name, and a home folder."""
    user, tools, outside = (home.parent / name for name in ("user", "tools", "outside"))
    for folder in (user, outside):
        folder.mkdir()
    program(tools, "mine", "echo good; echo x > ../outside-of-ws")
    rule(home, "mine")
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        yield Scene(bench_, user, tools, outside)


# -- startup files of a shell


async def test_folder_that_the_profile_adds_is_not_searched_for_an_allowed_program(
    scene: Scene,
) -> None:
    cargo = scene.user / ".cargo"
    (cargo / "bin").mkdir(parents=True)
    (scene.user / ".profile").write_text('PATH="$HOME/.cargo/bin:$PATH"\n')
    roots = f'{NO_TEMPORARY_FOLDERS}writable_roots = ["{cargo}"]\n'
    scene.bench.stage.configure(roots)
    ws = scene.bench.stage.workspace
    planting = f"printf '#!/bin/sh\\n{scene.evil}\\n' > {cargo}/bin/mine; chmod +x {cargo}/bin/mine"
    await scene.run(ws, planting)
    assert (cargo / "bin" / "mine").exists()
    assert "good" in await scene.run(ws, "mine")
    assert names(scene.outside) == []
    assert (ws.parent / "outside-of-ws").exists()


PLANTS = {
    "a program": "mkdir -p .local/bin; printf '#!/bin/sh\\n{evil}\\n' > .local/bin/mine; "
    "chmod +x .local/bin/mine",
    "a line of the profile": "echo '{evil}' >> .profile",
    "a profile that comes first": "echo '{evil}' > .bash_profile",
    "what every bash of a remote login reads": "echo '{evil}' > .bashrc",
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
async def test_files_that_an_earlier_thread_left_in_the_home_folder_take_no_effect(
    scene: Scene, plant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first thread works in the home folder, with Debian's default profile."""
    monkeypatch.setenv("SSH_CLIENT", "127.0.0.1 1 22")
    monkeypatch.setenv("SHLVL", "0")
    (scene.user / ".profile").write_text(
        'if [ -d "$HOME/.local/bin" ]; then PATH="$HOME/.local/bin:$PATH"; fi\n'
    )
    wait_for_tick(scene.user)
    await scene.run(scene.user, plant.format(evil=scene.evil), login=False)
    for login in (True, False):
        assert "good" in await scene.run(scene.bench.stage.workspace, "mine", login=login)
    assert names(scene.outside) == []


@pytest.mark.parametrize("variable", ["BASH_ENV", "ENV"])
async def test_file_that_a_variable_names_is_not_read(
    scene: Scene, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = scene.bench.stage.workspace
    (ws / "env").write_text(f"{scene.evil}\n")
    monkeypatch.setenv(variable, str(ws / "env"))
    assert "good" in await scene.run(ws, "mine", login=False)
    assert names(scene.outside) == []


INNER = ["bash -lc 'echo x'", "bash -l -c 'echo x'", "zsh -c 'echo x'"]
if shutil.which("zsh") is None:
    del INNER[-1]


@pytest.mark.parametrize("inner", INNER)
async def test_allowed_script_that_starts_a_shell_stays_in_the_sandbox(
    scene: Scene, inner: str
) -> None:
    ws = scene.bench.stage.workspace
    for name in (".profile", ".zshenv"):
        (scene.user / name).write_text(f"{scene.evil}\n")
    assert "good" in await scene.run(ws, f"mine && {inner}", login=False)
    assert names(scene.outside) == []
    assert not (ws.parent / "outside-of-ws").exists()


async def test_shell_itself_is_judged_too(scene: Scene) -> None:
    ws = scene.bench.stage.workspace
    program(ws, "bash", scene.evil)
    arguments = {"command": ["./bash", "-c", "mine"]}
    scene.bench.thread_id = await scene.bench.client.start(
        cwd=str(ws), approvalPolicy="never", sandbox="workspace-write"
    )
    _, output = await scene.bench.call("shell", arguments)
    assert "evil" in output
    assert names(scene.outside) == []


async def test_program_that_only_the_profile_finds_runs_in_the_sandbox(
    scene: Scene, home: Path
) -> None:
    """The rule has no effect there, but the command still works."""
    program(scene.user / "own", "only-mine", "echo ran; echo x > ../outside-of-ws")
    (scene.user / ".profile").write_text('PATH="$HOME/own:$PATH"\n')
    rule(home, "only-mine")
    ws = scene.bench.stage.workspace
    assert "ran" in await scene.run(ws, "only-mine")
    assert not (ws.parent / "outside-of-ws").exists()


async def test_library_of_the_workspace_is_not_loaded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty entry in these variables means the working folder of the command."""
    ws = scene.bench.stage.workspace
    program(scene.tools, "mine", 'echo "<$LD_LIBRARY_PATH|$PYTHONPATH|$PATH>"')
    monkeypatch.setenv("LD_LIBRARY_PATH", f":/usr/lib:{ws}/lib")
    monkeypatch.setenv("PYTHONPATH", f"src:{ws}/src")
    monkeypatch.setenv("PATH", f"{scene.tools}:{ws}:/usr/bin:/bin:")
    assert f"</usr/lib||{scene.tools}:/usr/bin:/bin>" in await scene.run(ws, "mine")


# -- read-only commands, approved to run outside


async def approved(scene: Scene, tool: str, arguments: dict[str, JsonValue]) -> str:
    """Run a command outside the sandbox after an approval; return its output."""
    client: Client = scene.bench.client
    ws = str(scene.bench.stage.workspace)
    scene.bench.thread_id = await client.start(
        cwd=ws, approvalPolicy="on-request", sandbox="workspace-write"
    )
    more = {"sandbox_permissions": "require_escalated", "justification": "why"}
    turn_id = await scene.bench.start_call(tool, {**arguments, **more})
    approval = (await client.until(APPROVAL))[-1]
    await client.peer.send({"id": approval["id"], "result": {"decision": "accept"}})
    (ended,) = commands(await client.end_of(turn_id))
    assert ended["status"] == "completed"
    return scene.bench.output()


READING: dict[str, tuple[str, dict[str, JsonValue]]] = {
    "in a login shell": ("exec_command", {"cmd": "ls"}),
    "in another shell": ("exec_command", {"cmd": "ls", "login": False}),
    "without a shell": ("shell", {"command": ["ls"]}),
}


@pytest.mark.parametrize(("tool", "arguments"), READING.values(), ids=READING)
async def test_approved_read_only_command_does_not_run_a_planted_program(
    scene: Scene, tool: str, arguments: dict[str, JsonValue], monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = scene.bench.stage.workspace
    program(ws / ".venv" / "bin", "ls", scene.evil)
    (scene.user / ".profile").write_text(f'PATH="{ws}/.venv/bin:$PATH"\n')
    monkeypatch.setenv("PATH", f"{ws}/.venv/bin:{os.environ['PATH']}")
    (ws / "seen").touch()
    assert "seen" in await approved(scene, tool, arguments)
    assert names(scene.outside) == []


@pytest.mark.parametrize("script", ["ls", "echo $(ls)"])
async def test_link_of_the_user_to_a_program_of_the_workspace_is_not_run(
    scene: Scene, script: str
) -> None:
    ws = scene.bench.stage.workspace
    program(ws / "build", "ls", scene.evil)
    (scene.tools / "ls").symlink_to(ws / "build" / "ls")
    (ws / "seen").touch()
    assert "seen" in await approved(scene, "exec_command", {"cmd": script})
    assert names(scene.outside) == []


async def test_unasked_reading_command_runs_no_program_of_the_workspace_through_a_link(
    scene: Scene,
) -> None:
    ws = scene.bench.stage.workspace
    program(ws / "build", "ls", scene.evil)
    (scene.tools / "ls").symlink_to(ws / "build" / "ls")
    (ws / "seen").touch()
    scene.bench.thread_id = await scene.bench.client.start(
        cwd=str(ws), approvalPolicy="untrusted", sandbox="danger-full-access"
    )
    _, output = await scene.bench.call("exec_command", {"cmd": "ls"})
    assert "seen" in output
    assert names(scene.outside) == []


async def test_path_without_any_trusted_folder_does_not_mean_the_working_folder(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = scene.bench.stage.workspace
    program(ws, "ls", scene.evil)
    monkeypatch.setenv("PATH", str(ws))
    with pytest.raises(AssertionError, match="failed"):
        await approved(scene, "exec_command", {"cmd": "ls"})
    assert names(scene.outside) == []


async def test_other_approved_commands_keep_the_path_that_the_user_knows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = scene.bench.stage.workspace
    program(ws / ".venv" / "bin", "mytests", "echo ran")
    monkeypatch.setenv("PATH", f"{ws}/.venv/bin:{os.environ['PATH']}")
    assert "ran" in await approved(scene, "exec_command", {"cmd": "mytests", "login": False})


@pytest.mark.parametrize(
    "script",
    ["git ls-files -m", "git grep x", "git status", "git log", "git diff", "ls && git branch"],
)
def test_client_approves_no_command_that_reads_the_settings_of_a_repository(script: str) -> None:
    assert not only_reads(script)
    assert not only_reads(f"/bin/bash -lc '{script}'")


@pytest.mark.parametrize("shell", ["bash -lc", "bash -c", "sh -c", "zsh -c"])
def test_client_approves_no_shell_that_a_shell_starts(shell: str) -> None:
    assert only_reads(f"{shell} ls")
    assert not only_reads(f"{shell} 'cat a; {shell} ls'")


# -- the command line that starts a shell


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("/bin/bash", "-lc", "x"), ("/bin/bash", "--noprofile", "--norc", "-c", "x")),
        (("bash", "-l", "-c", "x"), ("bash", "--noprofile", "--norc", "-c", "x")),
        (("/bin/zsh", "-lc", "x"), ("/bin/zsh", "-f", "-c", "x")),
        (("/bin/sh", "-lc", "x"), ("/bin/sh", "-c", "x")),
        (("ls", "-lc", "x"), ("ls", "-lc", "x")),
    ],
)
def test_shell_is_started_without_startup_files(
    argv: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    env = {"BASH_ENV": "a", "ENV": "b", "ZDOTDIR": "c", "SSH_CLIENT": "d", "HOME": "e"}
    found, kept = without_startup_files(argv, env)
    assert (found, kept) == (expected, {"HOME": "e"})
    assert not reads_startup_files(found)
