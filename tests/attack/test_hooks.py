"""Calls of a model and files of a workspace that hooks must see, and must not run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.harness.hooks import Hooks, matched, outcomes, warnings
from tests.harness.mcp import settled, stdio
from tests.harness.model_server import Reply, calls, completed, created, done, says
from tests.harness.threads import Client, Stage
from treadle.engine.mcp.names import model_names
from treadle.protocol.base import JsonValue


@pytest.fixture
async def client(stage: Stage) -> Client:
    """A client of the stage's server."""
    return await stage.client()


@pytest.fixture
def hooks(stage: Stage, client: Client) -> Hooks:
    """The hooks of the stage's home."""
    return Hooks(stage.home, client)


def called(arguments: str, **more: JsonValue) -> Reply:
    """A reply with a call of exec_command, with any arguments."""
    item = {"type": "function_call", "call_id": "call-1", "name": "exec_command", **more}
    return Reply([created("r"), done({**item, "arguments": arguments}), completed("r")])


# -- calls that hooks must see as they are


@pytest.mark.parametrize("namespace", ["", None, "functions"])
async def test_a_call_runs_no_command_without_the_hooks_for_commands(
    stage: Stage, client: Client, hooks: Hooks, namespace: JsonValue
) -> None:
    """An empty namespace leads to the same tool, so it must have the same hooks."""
    await hooks.install(PreToolUse=matched("Bash", "echo no >&2; exit 2"))
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="danger-full-access")
    stage.model.plays(called(json.dumps({"cmd": "touch made"}), namespace=namespace), says("done"))
    await client.run(thread_id)

    assert not (stage.workspace / "made").exists()


@pytest.mark.parametrize(
    "more", ["1" * 5000, "1e999999", "[" * 20_000 + "]" * 20_000], ids=["digits", "large", "deep"]
)
async def test_a_tool_reads_no_arguments_that_hooks_cannot_read(
    stage: Stage, client: Client, hooks: Hooks, more: str
) -> None:
    """The hook would look for the words in escaped text, and the tool would run them."""
    script = stage.home / "no_touch.sh"
    script.write_text("if grep -q touch; then echo no >&2; exit 2; fi\n", "utf-8")
    await hooks.install(PreToolUse=matched("Bash", f"sh {script}"))
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="danger-full-access")
    arguments = f'{{"cmd": "\\u0074ouch made", "ignored": {more}}}'
    stage.model.plays(called(arguments), says("done"))
    messages = await client.run(thread_id)

    assert not (stage.workspace / "made").exists()
    assert outcomes(messages) in ([], [("preToolUse", "blocked", ["feedback: no"])])


async def test_a_server_cannot_change_the_name_by_which_hooks_know_its_tool(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """The name for the model has a hash if it is too long, or if two tools would share it."""
    name = "long" * 15
    stage.configure(stdio(name, default_tools_approval_mode="approve"))
    await hooks.install(PreToolUse=matched(f"mcp__{name}__plain", "echo no >&2; exit 2"))
    thread_id = await client.start()
    await settled(client, name)
    shown = next(iter(model_names([(name, "plain")])))
    stage.model.plays(calls(shown, {"text": "hi"}), says("done"))
    await client.run(thread_id)

    assert "blocked by PreToolUse hook: no" in str(stage.model.requests[-1].outputs())


# -- files of the workspace that hooks must not run

ROOTS = "[sandbox_workspace_write]\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = true\n"
TRAP = "#!/bin/sh\ntouch {}/trapped\n"


def set_trap(stage: Stage, path: Path) -> Path:
    """Write a script that leaves a file in the home, where no command can."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(TRAP.format(stage.home), "utf-8")
    path.chmod(0o755)
    return path


NAMED = [
    "./check.sh||true",
    "./check.sh>/dev/null",
    "true&&./check.sh",
    "true;./check.sh;true",
    "true|./check.sh",
    "{ ./check.sh;}",
    "sh<check.sh",
    "sh ./check.sh>&2",
    "2>/dev/null ./check.sh",
    "bash -c 'sh check.sh'",
    'bash -O extglob -c "sh check.sh"',
    'echo "$(./check.sh)"',
    "`echo ./check.sh`",
    'echo "`./check.sh`"',
    'echo "(`sh check.sh`)"',
    "eval 'sh check.sh'",
    "FOO=./check.sh; $FOO",
    "sh ${X:-./check.sh}",
    "sh ${X:-$PWD/check.sh}",
    "sh {check.sh,}",
    "sh \\\n./check.sh",
    "sh `pwd`/check.sh",
    "sh $(pwd)/check.sh",
    'sh "${PWD:-x}/check.sh"',
    "sh ~+/check.sh",
    "sh /proc/self/cwd/check.sh",
    "sh $'./check.sh'",
    "cd ..; sh workspace/check.sh",
    "cd sub; sh ../check.sh",
    "x=a#b; sh ./check.sh",
    f"echo {'a ' * 70}; sh ./check.sh",
    "python3 -c 'import os; os.system(\"./check.sh\")'",
    "echo it's # fine\n./check.sh",
    "python3 sub",
    "python3 -u . || true",
]


@pytest.mark.parametrize("command", NAMED)
async def test_a_file_that_commands_can_write_is_found_however_a_hook_names_it(
    stage: Stage, client: Client, hooks: Hooks, command: str
) -> None:
    """Operators, quotes and variables of the shell surround the name."""
    set_trap(stage, stage.workspace / "check.sh")
    (stage.workspace / "sub").mkdir()
    await hooks.install(Stop=command)
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="workspace-write")
    messages = await client.run(thread_id)

    assert not (stage.home / "trapped").exists()
    assert "can be changed by sandboxed commands" in str(outcomes(messages))


@pytest.mark.parametrize(
    "command", ["test -e later.sh && sh later.sh", "test ! -e later.sh || ./later.sh"]
)
async def test_a_file_that_commands_can_create_counts_before_it_exists(
    stage: Stage, client: Client, hooks: Hooks, command: str
) -> None:
    """A command could create it between the look at it and the start of the hook."""
    await hooks.install(Stop=command)
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="workspace-write")
    messages = await client.run(thread_id)

    assert "later.sh can be changed by sandboxed commands" in str(outcomes(messages))


@pytest.mark.parametrize("place", ["check.sh", ".codex/check.sh"])
async def test_a_file_that_commands_could_write_before_does_not_run(
    stage: Stage, client: Client, hooks: Hooks, place: str
) -> None:
    """The thread may only read now; `.codex/check.sh` leads to the file that a command wrote."""
    path, link = stage.workspace / "check.sh", stage.workspace / ".codex" / "check.sh"
    path.write_text("true", "utf-8")
    link.parent.mkdir()
    link.symlink_to("../check.sh")
    await hooks.install(Stop=f"sh {place}")
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="workspace-write")
    written = TRAP.format(stage.home)
    stage.model.plays(calls("exec_command", {"cmd": f"echo '{written}' > check.sh"}), says("done"))
    await client.run(thread_id)
    await client.run(thread_id, sandboxPolicy={"type": "readOnly"})

    assert path.read_text("utf-8").startswith("#!")
    assert not (stage.home / "trapped").exists()


async def test_a_folder_before_two_dots_may_be_a_link_of_a_command(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """As text, the path leads to a script that is as it was."""
    folder = stage.workspace
    (folder / "tools").mkdir()
    (folder / "check.sh").write_text("true", "utf-8")
    stage.configure(ROOTS)
    await hooks.install(Stop="sh tools/../check.sh")
    thread_id = await client.start(cwd=str(folder), sandbox="workspace-write")
    script = shlex.quote(TRAP.format(stage.home))
    link = "rmdir tools; mkdir -p other/deep; ln -s other/deep tools"
    command = f"{link}; echo {script} > other/check.sh"
    stage.model.plays(calls("exec_command", {"cmd": command}), says("done"))
    await client.run(thread_id)
    await client.run(thread_id, sandboxPolicy={"type": "readOnly"})

    assert (folder / "tools" / ".." / "check.sh").read_text("utf-8").startswith("#!")
    assert not (stage.home / "trapped").exists()


HARMLESS = [
    "ruff check . >/dev/null 2>&1 || true",
    "test -e missing.md || true",
    "grep -qe 'some/text' /dev/null || true",
    "head -c 10 /dev/null",
    "mkdir -p made/one && echo x > made/one/log",
    "python3 -m json.tool < /dev/null || true",
    "python3 -c 'print(1 / 2)' > /dev/null",
    "diff <(echo a) <(echo a) || true",
    "OUT=made/two sh -c 'true'",
    "if true; then echo done >&2; fi",
    'jq -r .tool_input.command < /dev/null; cd "$PWD"',
]


@pytest.mark.parametrize("command", HARMLESS)
async def test_a_hook_that_names_no_file_of_commands_runs(
    stage: Stage, client: Client, hooks: Hooks, command: str
) -> None:
    """Words that name no file, and files that the hook makes itself, do not count."""
    await hooks.install(Stop=command)
    thread_id = await client.start(cwd=str(stage.workspace), sandbox="workspace-write")
    messages = await client.run(thread_id)

    assert "can be changed" not in str(outcomes(messages))


# -- start-up files and folders of PATH


@pytest.fixture
def user(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home folder of the user."""
    folder = stage.workspace / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.mark.parametrize("later", [{}, {"sandboxPolicy": {"type": "readOnly"}}], ids=str)
async def test_a_hook_reads_no_start_up_file_that_a_command_wrote(
    stage: Stage, client: Client, hooks: Hooks, user: Path, later: dict[str, JsonValue]
) -> None:
    """Hooks run outside the sandbox, in a login shell; the user works in the home folder."""
    stage.configure(ROOTS)
    await hooks.install(Stop="true")
    thread_id = await client.start(cwd=str(user), sandbox="workspace-write")
    trap = f"touch {stage.home}/trapped"
    command = f"for name in profile bash_profile bashrc zshenv; do echo '{trap}' > ~/.$name; done"
    stage.model.plays(calls("exec_command", {"cmd": command, "login": False}), says("done"))
    await client.run(thread_id)
    await client.run(thread_id, **later)

    assert (user / ".profile").exists()
    assert not (stage.home / "trapped").exists()


async def test_a_start_up_file_puts_no_folder_of_commands_before_the_programs_of_a_hook(
    stage: Stage, client: Client, hooks: Hooks, user: Path
) -> None:
    """Many profiles put ~/.local/bin first."""
    planted = set_trap(stage, user / "bin" / "date")
    stage.configure(f"{ROOTS}writable_roots = ['{planted.parent}']\n")
    (user / ".profile").write_text('PATH="$HOME/bin:$PATH"\nexport SEEN=1\n', "utf-8")
    await hooks.install(Stop=f"date > /dev/null; echo $SEEN > {stage.home}/seen")
    elsewhere = stage.home.parent / "elsewhere"
    elsewhere.mkdir()
    await client.run(await client.start(cwd=str(elsewhere), sandbox="workspace-write"))

    assert (stage.home / "seen").read_text("utf-8") == "1\n"
    assert not (stage.home / "trapped").exists()


# -- files that take long to read


MANY = 16_000
FAULTY: dict[str, JsonValue] = {
    "unknown events": {f"e{number:05}": 0 for number in range(MANY)},
    "wrong groups": {"PreToolUse": [0] * (2 * MANY)},
    "wrong hooks": {"PreToolUse": [{"hooks": [{}] * MANY}]},
}


@pytest.mark.parametrize("kind", FAULTY)
async def test_a_file_with_many_faults_does_not_hold_up_a_turn(
    stage: Stage, client: Client, hooks: Hooks, kind: str
) -> None:
    """Each took a search for its line and a warning; the project is trusted, its hooks are not."""
    folder = stage.workspace / ".codex"
    folder.mkdir()
    path = folder / "hooks.json"
    path.write_text(json.dumps({"hooks": FAULTY[kind]}), "utf-8")
    stage.configure(f'[projects."{stage.workspace}"]\ntrust_level = "trusted"\n')
    found = (await client.request("hooks/list", {"cwds": [str(stage.workspace)]}))["data"][0]
    messages = await client.run(await client.start(cwd=str(stage.workspace)))

    shown = [error["message"] for error in found["errors"]]
    assert len(shown) == 20
    assert shown[-1] == "further faults are not shown"
    assert len(warnings(messages)) == 20
