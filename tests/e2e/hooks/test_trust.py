"""Which hooks run: only those that the user, or the administrator, trusts as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.execs import ANYWHERE, KNOWN, bench
from tests.harness.hooks import Hooks, handler, outcomes, runs, warnings
from tests.harness.model_server import calls, patches, says
from tests.harness.processes import TREADLE
from tests.harness.sandbox import SANDBOX
from tests.harness.scripted import OneModel, client_of
from tests.harness.threads import Client, Stage, outline, params_of
from tests.server.serving import configuration
from treadle.model.scripted.model import ScriptedModel
from treadle.model.scripted.model import calls as scripted_call
from treadle.protocol.base import JsonValue
from treadle.server.server import Server


async def run_command(
    stage: Stage, client: Client, command: str = "echo hi", **params: JsonValue
) -> tuple[list[JsonValue], str]:
    """Let the model run a command; return the messages, and the output that the model got."""
    thread_id = await client.start(**{"cwd": str(stage.workspace), **params})
    stage.model.plays(calls("exec_command", {"cmd": command}), says("done"))
    messages = await client.run(thread_id)
    return messages, str(stage.model.requests[-1].outputs()["call-1"])


async def test_an_untrusted_hook_does_not_run_and_clients_are_warned(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: it does not run. Ours: a warning, once for a thread."""
    path = hooks.write(PreToolUse=hooks.says(error="no", code=2))
    messages, output = await run_command(stage, client)
    again = await client.run(params_of(messages, "turn/started")[0]["threadId"])

    assert output.endswith("Output:\nhi\n")
    assert runs(messages) == []
    assert warnings(messages) == [
        (
            f"hooks that are not trusted do not run: {path}:pre_tool_use:0:0; "
            "review them with hooks/list"
        )
    ]
    assert warnings(again) == []


async def test_trust_counts_from_the_next_turn_of_a_loaded_thread(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: no thread has to be started again."""
    hooks.write(Stop=hooks.records())
    thread_id = await client.start()
    await client.run(thread_id)
    assert hooks.given() == []
    await hooks.trust()
    await client.run(thread_id)

    assert hooks.events() == ["Stop"]


async def test_a_changed_hook_that_only_observes_does_not_run(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: it needs trust again."""
    await hooks.install(Stop=hooks.records())
    hooks.write(Stop=f"{hooks.records()}; true")
    messages = await client.run(await client.start())

    assert (hooks.given(), runs(messages)) == ([], [])
    assert "hooks that are not trusted do not run" in warnings(messages)[0]


async def test_a_changed_hook_that_decides_denies_until_it_is_trusted_again(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: the reference runs the call without the hook."""
    await hooks.install(PreToolUse=hooks.records())
    path = hooks.write(PreToolUse=f"{hooks.records()}; true")
    messages, denied = await run_command(stage, client)
    await hooks.trust()
    _, allowed = await run_command(stage, client)

    reason = f"the hook {path}:pre_tool_use:0:0 changed after it was trusted"
    assert f"Command blocked by PreToolUse hook: the hook failed: {reason}" in denied
    assert [run["status"] for run in runs(messages)] == ["failed"]
    assert allowed.endswith("Output:\nhi\n")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"hooks": {"PreToolUse": {}}}',
        '{"hooks": {"PreToolUse": [{"hooks": [{"type": "command"}]}]}}',
        '{"hooks": {"PreToolUse": [{"hooks": [{"type": "prompt"}]}]}}',
    ],
)
async def test_a_deciding_hook_in_a_file_that_broke_still_denies(
    stage: Stage, client: Client, hooks: Hooks, text: str
) -> None:
    """Ours: the reference runs the call without the hook."""
    await hooks.install(PreToolUse=hooks.records(), Stop=hooks.records())
    (stage.home / "hooks.json").write_text(text, "utf-8")
    messages, denied = await run_command(stage, client)

    assert "Command blocked by PreToolUse hook: the hook failed: the hook " in denied
    assert "cannot run" in denied
    assert outline(messages)[-1] == "turn/completed completed"


async def test_a_removed_or_disabled_hook_denies_nothing(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: the user may take it away."""
    await hooks.install(PreToolUse="exit 1")
    (hook,) = await hooks.trust()
    edit = {
        "keyPath": "hooks.state",
        "value": {hook["key"]: {"enabled": False}},
        "mergeStrategy": "upsert",
    }
    await client.request("config/batchWrite", {"edits": [edit]})
    _, disabled = await run_command(stage, client)
    (stage.home / "hooks.json").unlink()
    _, removed = await run_command(stage, client)

    assert disabled.endswith("Output:\nhi\n")
    assert removed.endswith("Output:\nhi\n")


async def test_an_invalid_configuration_leaves_the_hooks_in_force(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: a fault that appears between two turns must not remove a deciding hook."""
    await hooks.install(PreToolUse=hooks.says(error="no", code=2))
    thread_id = await client.start()
    await client.run(thread_id)
    (stage.home / "config.toml").write_text("model = [", "utf-8")
    stage.model.plays(calls("exec_command", {"cmd": "echo hi"}), says("done"))
    turn_id = await client.start_turn(thread_id)
    await client.end_of(turn_id)

    given = [str(each.outputs()) for each in stage.model.requests]
    assert not any("Output:\\nhi" in each for each in given)


async def test_no_turn_runs_whose_hooks_were_never_read(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: the configuration broke between the start of a thread and its first turn."""
    folder = project(stage, hooks.says(error="no", code=2))
    trust_project(stage)
    await hooks.trust(folder)
    thread_id = await client.start(cwd=str(folder))
    (folder / ".codex" / "config.toml").write_text("model = [", "utf-8")
    messages = await client.run(thread_id)

    (failure,) = params_of(messages, "error")
    assert failure["error"]["message"].startswith("hooks cannot be read: failed to load ")
    assert stage.model.requests == []


# -- projects


def project(stage: Stage, command: str) -> Path:
    """A repository with a hook before tools."""
    folder = stage.workspace
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n", "utf-8")
    (folder / ".codex").mkdir()
    group = {"hooks": [handler(command)]}
    text = json.dumps({"hooks": {"PreToolUse": [group]}})
    (folder / ".codex" / "hooks.json").write_text(text, "utf-8")
    return folder


def trust_project(stage: Stage, level: str = "trusted") -> None:
    """Write the user's trust in the workspace."""
    stage.configure(f'[projects."{stage.workspace}"]\ntrust_level = "{level}"\n')


@pytest.mark.parametrize("level", ["untrusted", None])
async def test_hooks_of_an_untrusted_project_never_run(
    stage: Stage, client: Client, hooks: Hooks, level: str | None
) -> None:
    """Upstream: even if their hashes are trusted."""
    folder = project(stage, hooks.says(error="no", code=2))
    trust_project(stage)
    await hooks.trust(folder)
    state = (stage.home / "config.toml").read_text("utf-8").replace('"trusted"', f'"{level}"')
    if level is None:
        state = state.replace('trust_level = "None"', "")
    (stage.home / "config.toml").write_text(state, "utf-8")
    _, output = await run_command(stage, client)

    assert output.endswith("Output:\nhi\n")
    assert hooks.given() == []


async def test_hooks_of_a_trusted_project_run_when_they_are_trusted_too(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream."""
    folder = project(stage, hooks.says(error="no", code=2))
    trust_project(stage)
    _, before = await run_command(stage, client)
    await hooks.trust(folder)
    _, after = await run_command(stage, client)

    assert before.endswith("Output:\nhi\n")
    assert "blocked by PreToolUse hook: no" in after


async def test_the_sandbox_does_not_let_commands_or_patches_change_hooks(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours and upstream's: hooks run outside the sandbox."""
    folder = project(stage, hooks.records())
    trust_project(stage)
    await hooks.trust(folder)
    before = (folder / ".codex" / "hooks.json").read_text("utf-8")
    change = "*** Begin Patch\n*** Delete File: .codex/hooks.json\n*** End Patch\n"
    where = {"cwd": str(folder), "sandbox": "workspace-write"}
    thread_id = await client.start(**where)
    stage.model.plays(
        calls("exec_command", {"cmd": "echo '{}' > .codex/hooks.json; touch made"}),
        patches(change, "call-2"),
        says("done"),
    )
    await client.run(thread_id)

    assert (folder / "made").exists()
    assert (folder / ".codex" / "hooks.json").read_text("utf-8") == before
    assert "patch rejected" in str(stage.model.requests[-1].outputs()["call-2"])


SCRIPT = "#!/bin/sh\nexit 0\n"


@pytest.mark.parametrize(
    "command", ["sh check.sh", "./check.sh", 'sh "$PWD/check.sh"', "sh sub/../check.sh"]
)
async def test_a_script_that_commands_can_change_does_not_run_outside_the_sandbox(
    stage: Stage, client: Client, hooks: Hooks, command: str
) -> None:
    """Ours: the reference runs it, with what the model wrote into it."""
    folder = project(stage, command)
    (folder / "sub").mkdir()
    (folder / "check.sh").write_text(SCRIPT, "utf-8")
    (folder / "check.sh").chmod(0o755)
    trust_project(stage)
    await hooks.trust(folder)
    _, output = await run_command(stage, client, sandbox="workspace-write")

    assert f"{folder}/check.sh can be changed by sandboxed commands" in output


async def test_a_script_beside_the_hooks_of_a_project_runs(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: commands cannot change it there."""
    folder = project(stage, "sh .codex/check.sh")
    (folder / ".codex" / "check.sh").write_text(SCRIPT, "utf-8")
    trust_project(stage)
    await hooks.trust(folder)
    messages, output = await run_command(stage, client, sandbox="workspace-write")

    assert outcomes(messages) == [("preToolUse", "completed", [])]
    assert output.endswith("Output:\nhi\n")


async def test_a_program_that_commands_wrote_is_not_found_first(
    stage: Stage, client: Client, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: trusted folders of `PATH` come first, as for MCP servers."""
    fake = stage.workspace / "bin"
    fake.mkdir()
    (fake / "cat").write_text(f"#!/bin/sh\ntouch {stage.home}/fooled\n", "utf-8")
    (fake / "cat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:/usr/bin:/bin")
    await hooks.install(PreToolUse="cat > /dev/null")
    await run_command(stage, client, sandbox="workspace-write")

    assert not (stage.home / "fooled").exists()


# -- other programs than the app-server


async def test_hooks_run_in_exec_and_in_servers_alike(tmp_path: Path) -> None:
    """Upstream's complaint: hooks that run in one of them only."""
    async with bench(TREADLE, tmp_path) as at:
        group = {"hooks": [handler("echo not here >&2; exit 2")]}
        hooks_file = {"hooks": {"PreToolUse": [group]}}
        (at.home / "hooks.json").write_text(json.dumps(hooks_file), "utf-8")
        replies = [calls("exec_command", {"cmd": "touch made"}), says("done")]
        options = (ANYWHERE, *KNOWN, "--json", "-s", "danger-full-access", "go")
        untrusted = await at.run(*options, replies=replies)
        has_run = (at.cwd / "made").exists()
        (at.cwd / "made").unlink()
        bypass = await at.run("--dangerously-bypass-hook-trust", *options, replies=replies)
        output = at.model.requests[-1].outputs()["call-1"]

    assert (untrusted.exit_code, bypass.exit_code, has_run) == (0, 0, True)
    assert output == "Command blocked by PreToolUse hook: not here. Command: touch made"
    assert "hooks that are not trusted do not run" in untrusted.stdout + untrusted.stderr


async def test_an_administrators_hook_needs_no_trust_and_cannot_be_switched_off(
    home: Path, tmp_path: Path
) -> None:
    """Upstream: it is managed."""
    requirements = (
        "[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\n"
        'type = "command"\ncommand = "echo by order >&2; exit 2"\n'
    )
    path = tmp_path / "system" / "requirements.toml"
    key = f"{path}:pre_tool_use:0:0"
    own = f'[features]\nhooks = false\n[hooks.state."{key}"]\nenabled = false\n'
    model = ScriptedModel([scripted_call("exec_command", {"cmd": "echo hi"}), "done"])
    settings = configuration(home, own, requirements=requirements)
    server = Server(configuration=settings, models=OneModel(model), sandbox=SANDBOX)
    try:
        async with client_of(server) as client:
            await client.run(await client.start())
    finally:
        await server.close()

    outputs = [item["output"] for item in model.requests[-1].input if "output" in item]
    assert outputs == ["Command blocked by PreToolUse hook: by order. Command: echo hi"]
