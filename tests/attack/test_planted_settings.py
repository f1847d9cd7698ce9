"""Settings, links and programs that a sandboxed command plants take no effect outside it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.harness.commands import Bench, bench
from tests.harness.sandbox import find_backend, findings, using
from tests.harness.ticks import wait_for_tick
from tests.sandbox.commands import PYTHON, run, workspace
from treadle.config.configuration import Configuration
from treadle.config.planted import Planted
from treadle.protocol.base import JsonValue
from treadle.sandbox.opened_roots import FILE_NAME, OpenedRoots

WRITES = {"approvalPolicy": "never", "sandbox": "workspace-write"}
NO_TEMPORARY_FOLDERS = """
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
"""
PLANTED = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'


def trust(*folders: Path) -> str:
    """Return the lines of a configuration that trust some folders."""
    return "".join(f'[projects."{folder}"]\ntrust_level = "trusted"\n' for folder in folders)


def repository(folder: Path) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "sub").mkdir()
    return folder


def plant(folder: Path) -> None:
    (folder / ".codex" / "rules").mkdir(parents=True)
    (folder / ".codex" / "config.toml").write_text(PLANTED)


async def run_in(bench_: Bench, cwd: Path, script: str, *, login: bool = True) -> str:
    """Have the model of a new thread run a script, sandboxed.

    Without `login`, the shell keeps the `PATH` of the server.
    """
    bench_.thread_id = await bench_.client.start(cwd=str(cwd), **WRITES)
    _, output = await bench_.call("exec_command", {"cmd": script, "login": login})
    return output


async def layers_of(bench_: Bench, cwd: Path) -> dict[str, str | None]:
    """Return the project layers for a folder, and why each is ignored if it is."""
    params = {"cwd": str(cwd), "includeLayers": True}
    answer = await bench_.client.request("config/read", params)
    layers: list[JsonValue] = answer["layers"]
    return {
        layer["name"]["dotCodexFolder"]: layer.get("disabledReason")
        for layer in layers
        if layer["name"]["type"] == "project"
    }


async def test_hooks_planted_below_a_trusted_root_are_not_listed(home: Path) -> None:
    project = repository(home.parent / "project")
    hook = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}
    async with bench(home) as bench_:
        bench_.stage.configure(trust(project))
        text = json.dumps(hook)
        script = f"mkdir -p sub/.codex; printf '%s' '{text}' > sub/.codex/hooks.json"
        await run_in(bench_, project, script)
        assert (project / "sub" / ".codex" / "hooks.json").exists()
        params = {"cwds": [str(project / "sub")]}
        (entry,) = (await bench_.client.request("hooks/list", params))["data"]

    assert entry["hooks"] == []


async def test_settings_planted_below_a_trusted_root_are_ignored(home: Path) -> None:
    project = repository(home.parent / "project")
    async with bench(home) as bench_:
        bench_.stage.configure(trust(project))
        script = f"mkdir -p sub/.codex/rules; printf '{PLANTED}' > sub/.codex/config.toml"
        await run_in(bench_, project, script)
        assert (project / "sub" / ".codex" / "config.toml").exists()
        ((folder, reason),) = (await layers_of(bench_, project / "sub")).items()
        assert folder == str(project / "sub" / ".codex")
        assert reason is not None
        assert "sandboxed commands could write there" in reason
        assert f'projects."{project}/sub".trust_level' in reason
        answer = await bench_.client.request("thread/start", {"cwd": str(project / "sub")})
        assert answer["sandbox"]["type"] == "readOnly"


async def test_existing_settings_apply_until_they_change(home: Path) -> None:
    project = repository(home.parent / "project")
    plant(project / "sub")
    wait_for_tick(home.parent)
    async with bench(home) as bench_:
        # Other programs create files in the temporary folder, which looks like a rename.
        bench_.stage.configure(trust(project) + NO_TEMPORARY_FOLDERS)
        await run_in(bench_, project, "true")
        assert set((await layers_of(bench_, project / "sub")).values()) == {None}
        await run_in(bench_, project, "echo '# mine' >> sub/.codex/config.toml")
        assert set((await layers_of(bench_, project / "sub")).values()) != {None}


async def test_record_outlives_the_server_and_times_cannot_be_forged(home: Path) -> None:
    project = repository(home.parent / "project")
    async with bench(home) as bench_:
        bench_.stage.configure(trust(project))
        script = "mkdir -p sub/.codex; touch sub/.codex/config.toml; "
        script += "touch -d 2001-01-01 sub/.codex/config.toml sub/.codex sub"
        await run_in(bench_, project, script)
    layers = Configuration(home).effective(str(project / "sub")).layers
    assert [layer.disabled_reason is None for layer in layers[2:]] == [False]
    lines = (home / FILE_NAME).read_text().splitlines()
    assert str(project) in [json.loads(line)[0] for line in lines]


async def test_settings_of_a_folder_trusted_by_name_apply_and_cannot_be_changed(
    home: Path,
) -> None:
    project = repository(home.parent / "project")
    async with bench(home) as bench_:
        if (await find_backend()).name == "landlock":
            pytest.skip("Landlock does not protect these names by default")
        bench_.stage.configure(trust(project, project / "sub"))
        await run_in(bench_, project, "true")
        plant(project / "sub")
        assert set((await layers_of(bench_, project / "sub")).values()) == {None}
        script = (
            "echo x >> sub/.codex/config.toml; mv sub moved; mv sub/.codex m; mkdir sub/.agents"
        )
        await run_in(bench_, project, script)
        assert (project / "sub" / ".codex" / "config.toml").read_text() == PLANTED
        assert sorted(path.name for path in (project / "sub").iterdir()) == [".codex"]


async def test_trusted_project_below_the_workspace_keeps_its_settings(home: Path) -> None:
    top = home.parent / "top"
    project = repository(top / "deep" / "project")
    async with bench(home) as bench_:
        if (await find_backend()).name == "landlock":
            pytest.skip("Landlock does not protect these names by default")
        bench_.stage.configure(trust(project))
        await run_in(bench_, top, "mkdir -p deep/project/.codex; mv deep moved; echo over")
    assert not (project / ".codex").exists()


async def test_link_in_the_settings_of_a_nested_folder_is_ignored(home: Path) -> None:
    project = repository(home.parent / "project")
    (project / "sub" / ".codex").mkdir()
    (project / "shared.toml").write_text(PLANTED)
    (project / "sub" / ".codex" / "config.toml").symlink_to("../../shared.toml")
    async with bench(home) as bench_:
        bench_.stage.configure(trust(project))
        assert set((await layers_of(bench_, project / "sub")).values()) != {None}


# -- folders replaced by links


@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
async def test_link_in_the_place_of_another_threads_folder_opens_nothing(
    home: Path, is_restarted: bool
) -> None:
    top, outside = home.parent / "top", home.parent / "outside"
    (top / "sub").mkdir(parents=True)
    outside.mkdir()
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        victim = await bench_.client.start(cwd=str(top / "sub"), **WRITES)
        bench_.thread_id = victim
        _, output = await bench_.call("exec_command", {"cmd": "echo x > mine && echo ok"})
        assert "ok" in output
        await run_in(bench_, top, f"mv sub moved; ln -s {outside} sub")
        assert (top / "sub").is_symlink()
        if is_restarted:
            await bench_.stage.restart()
            bench_.client = await bench_.stage.client()
            await bench_.client.request("thread/resume", {"threadId": victim})
        bench_.thread_id = victim
        script = f"echo x > planted; echo x > {outside}/planted; echo over"
        _, output = await bench_.call("exec_command", {"cmd": script}, "call-2")
        assert "over" in output
        # A new thread that is opened there by name does not get access either.
        await run_in(bench_, top / "sub", script)
    assert list(outside.iterdir()) == []


def test_older_links_are_followed(tmp_path: Path) -> None:
    record = OpenedRoots(tmp_path / "home")
    (tmp_path / "old").symlink_to("target")
    wait_for_tick(tmp_path)
    record.add([str(tmp_path)])
    (tmp_path / "new").symlink_to("target")
    again = OpenedRoots(tmp_path / "home")
    found = {name: again.may_have_made(str(tmp_path / name)) for name in ("old", "new", "missing")}
    # A command may have removed the last one, and may put it back.
    assert found == {"old": False, "new": True, "missing": True}


# -- programs that a rule lets run outside the sandbox


def rule(home: Path, *pattern: str) -> None:
    (home / "rules").mkdir(exist_ok=True)
    text = f"prefix_rule(pattern={list(pattern)!r}, decision='allow')\n"
    (home / "rules" / "default.rules").write_text(text)


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


async def test_rule_does_not_run_a_program_planted_in_the_path(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = home.parent / "outside"
    outside.mkdir()
    rule(home, "git")
    async with bench(home) as bench_:
        ws = bench_.stage.workspace
        program(ws / "bin", "git", f"echo planted > {outside}/planted")
        monkeypatch.setenv("PATH", f"{ws}/bin:.:{os.environ['PATH']}")
        output = await run_in(bench_, ws, "git --version", login=False)
        assert "git version" in output
    assert list(outside.iterdir()) == []


async def test_an_empty_folder_above_is_no_repository_of_git(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandbox of another command holds such a `.git` in each of its writable folders."""
    rule(home, "git")
    async with bench(home) as bench_:
        ws = bench_.stage.workspace
        (ws.parent / ".git").mkdir(0o555)
        program(ws / "bin", "git", "echo planted")
        monkeypatch.setenv("PATH", f"{ws}/bin:{os.environ['PATH']}")
        output = await run_in(bench_, ws, "git --version", login=False)
    assert "git version" in output


async def test_program_found_only_in_the_workspace_runs_in_the_sandbox(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = home.parent / "outside"
    outside.mkdir()
    rule(home, "only-here")
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        ws = bench_.stage.workspace
        program(ws / "bin", "only-here", f"echo ran; echo planted > {outside}/planted")
        monkeypatch.setenv("PATH", f"{ws}/bin:{os.environ['PATH']}")
        assert "ran" in await run_in(bench_, ws, "only-here", login=False)
    assert list(outside.iterdir()) == []


async def test_rule_allows_no_shell_whose_startup_files_can_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = home.parent / "outside"
    outside.mkdir()
    rule(home, "git")
    async with bench(home) as bench_:
        ws = bench_.stage.workspace
        monkeypatch.setenv("HOME", str(ws))
        (ws / ".profile").write_text(f"echo planted > {outside}/planted\n")
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        await run_in(bench_, ws, "git --version")
    assert list(outside.iterdir()) == []


async def test_rule_still_allows_the_program_that_it_means(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, tools = home.parent / "outside", home.parent / "tools"
    outside.mkdir()
    program(tools, "mine", f"echo x > {outside}/made")
    rule(home, "mine")
    async with bench(home) as bench_:
        bench_.stage.configure(NO_TEMPORARY_FOLDERS)
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        await run_in(bench_, bench_.stage.workspace, "mine", login=False)
    assert [path.name for path in outside.iterdir()] == ["made"]


# -- files that run as their owner

SET_ID = r"""
import os, stat
def attempt(action, *arguments, **more):
    try:
        action(*arguments, **more)
    except OSError:
        pass
def create(name, mode):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, mode))
os.umask(0)
open("plain", "w").close()
for number, mode in enumerate((0o4755, 0o2755, 0o6755)):
    attempt(create, f"created-{number}", mode)
    attempt(os.mknod, f"made-{number}", stat.S_IFREG | mode)
    attempt(os.chmod, "plain", mode)
    with open("plain") as file:
        attempt(os.fchmod, file.fileno(), mode)
    attempt(os.chmod, "plain", mode, follow_symlinks=False)
print("over")
"""
USUAL = """
set -e
mkdir src; echo x > src/a; chmod 755 src/a; ln -s a src/link
tar cf all.tar src; mkdir out; tar xpf all.tar -C out
cp -rp src copy; install -m 755 src/a installed; mkdir -m 1777 shared
mkdir repo; cd repo; git -c init.defaultBranch=main init -q .; echo x > f; git add f
git -c user.name=a -c user.email=a@b commit -qm x; cd ..
printf 'all:\n\tcp src/a made\n' > Makefile; make -s
echo over
"""


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
async def test_no_set_user_id_file_can_be_left_behind(tmp_path: Path, name: str) -> None:
    found = {f.name: f.backend async for f in findings() if f.backend is not None}
    if name not in found:
        pytest.skip(f"{name} does not work here")
    ws = tmp_path / "ws"
    ws.mkdir()
    with using(found[name]):
        done = await run([*PYTHON, SET_ID], workspace(ws), cwd=ws)
        assert (done.stdout, done.stderr) == ("over\n", "")
        modes = {path.name: path.lstat().st_mode & 0o6000 for path in ws.iterdir()}
        assert not any(modes.values()), modes
        done = await run(["/bin/sh", "-c", USUAL], workspace(ws), cwd=ws)
    assert (done.stdout, done.stderr) == ("over\n", "")


async def test_old_settings_without_rules_of_a_folder_still_take_effect(home: Path) -> None:
    project = repository(home.parent / "project")
    (project / "sub" / ".codex").mkdir()
    (project / "sub" / ".codex" / "config.toml").write_text('model = "m"\n')
    wait_for_tick(project)
    async with bench(home) as bench_:
        bench_.stage.configure(trust(project) + NO_TEMPORARY_FOLDERS)
        await run_in(bench_, project, "touch other")

        layers = await layers_of(bench_, project / "sub")

    assert layers[str(project / "sub" / ".codex")] is None


async def test_settings_with_too_many_rules_are_ignored_without_examining_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = repository(home.parent / "project")
    plant(project / "sub")
    rules = project / "sub" / ".codex" / "rules"
    for number in range(101):
        (rules / f"{number}.x").touch()
    wait_for_tick(project)
    examined: list[Path] = []
    made = Planted.made

    def watched(self: Planted, path: Path, folder: Path) -> bool:
        examined.append(path)
        return made(self, path, folder)

    monkeypatch.setattr(Planted, "made", watched)
    async with bench(home) as bench_:
        bench_.stage.configure(trust(project) + NO_TEMPORARY_FOLDERS)
        await run_in(bench_, project, "touch other")

        layers = await layers_of(bench_, project / "sub")

    reason = layers[str(rules.parent)]
    assert reason is not None
    assert reason.startswith(f"{rules} has more than 100 entries, so it is ignored")
    assert not [path for path in examined if path.parent == rules]


async def test_the_rules_that_a_command_adds_are_not_examined_one_by_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = repository(home.parent / "project")
    plant(project / "sub")
    rules = project / "sub" / ".codex" / "rules"
    wait_for_tick(project)
    examined: list[Path] = []
    made = Planted.made

    def watched(self: Planted, path: Path, folder: Path) -> bool:
        examined.append(path)
        return made(self, path, folder)

    monkeypatch.setattr(Planted, "made", watched)
    async with bench(home) as bench_:
        bench_.stage.configure(trust(project) + NO_TEMPORARY_FOLDERS)
        await run_in(bench_, project, "touch sub/.codex/rules/{1..50}.rules")

        layers = await layers_of(bench_, project / "sub")

    assert layers[str(rules.parent)] is not None
    assert not [path for path in examined if path.parent == rules]
