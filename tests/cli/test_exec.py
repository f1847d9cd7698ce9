"""`treadle exec` alone: its output, how it ends, and which settings apply."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import treadle
from tests.harness.commands import LOGIN_SHELL
from tests.harness.execs import ANYWHERE, KNOWN, Bench, During, bench, still
from tests.harness.model_server import calls, fails, refuses, says
from tests.harness.processes import TREADLE
from tests.harness.threads import spawned
from treadle.protocol.base import JsonValue

PLAIN = (ANYWHERE, *KNOWN)
JSON = (*PLAIN, "--json")
FREE = (*JSON, "-s", "danger-full-access")
FAILED = [refuses(400, {"error": {"message": "no such thing"}})]


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Bench]:
    """Return a bench for our own program."""
    async with bench(TREADLE, tmp_path) as made:
        yield made


def answer(text: str, number: int = 0) -> JsonValue:
    """Return the event of a message."""
    item = {"id": f"item_{number}", "type": "agent_message", "text": text}
    return {"type": "item.completed", "item": item}


# -- what is printed


async def test_text_from_others_cannot_control_the_terminal(at: Bench) -> None:
    command = "printf 'a\\033[2Jb\\n' #\x1b[1A"
    plan = {"explanation": "e\x1b[1A", "plan": [{"step": "s\x1b[1A", "status": "pending"}]}
    replies = [
        calls("update_plan", plan, "c1"),
        calls("exec_command", {"cmd": command}, "c2"),
        says("done\x1b[2J\u202e"),
    ]
    options = (*PLAIN, "-s", "danger-full-access", "--color", "never")
    ran = await at.run(*options, "go\x1b[1A", replies=replies)
    assert "a\\x1b[2Jb\n" in ran.stderr
    assert "#\\x1b[1A" in ran.stderr
    assert "done\\x1b[2J\\u202e\n" in ran.stderr
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", ran.stderr)
    # A program that reads the output gets the message unchanged.
    assert ran.stdout == "done\x1b[2J\u202e\n"


async def test_progress_goes_to_stderr_and_the_last_message_to_stdout(at: Bench) -> None:
    replies = [calls("exec_command", {"cmd": "echo one; exit 3"}, "c1"), says("It failed.")]
    ran = await at.run(*PLAIN, "-s", "danger-full-access", "go", replies=replies)
    assert (ran.exit_code, ran.stdout) == (0, "It failed.\n")
    stderr = re.sub(r"in \d+ms", "in <n>ms", still(ran.stderr))
    assert (
        stderr
        == f"""\
Reading additional input from stdin...
Treadle v{treadle.__version__}
--------
workdir: {at.cwd}
model: gpt-5.5
provider: mock_provider
approval: never
sandbox: danger-full-access
reasoning effort: none
reasoning summaries: none
session id: <id>
--------
user
go
exec
{LOGIN_SHELL} -lc 'echo one; exit 3' in {at.cwd}
 exited 3 in <n>ms:
one

codex
It failed.
tokens used
30
"""
    )


async def test_colors_are_printed_on_request(at: Bench) -> None:
    assert "\x1b[" not in (await at.run(*PLAIN, "hi")).stderr
    assert "\x1b[36muser\x1b[0m\nhi\n" in (await at.run(*PLAIN, "--color", "always", "hi")).stderr


async def test_a_plan_is_one_item_until_the_turn_ends(at: Bench) -> None:
    """As 0.118 prints it; 0.163 has no plan tool."""
    plans = [
        [{"step": "one", "status": "in_progress"}],
        [{"step": "one", "status": "completed"}, {"step": "two", "status": "pending"}],
    ]
    replies = [calls("update_plan", {"plan": plan}, f"c{i}") for i, plan in enumerate(plans)]
    ran = await at.run(*JSON, "go", replies=[*replies, says("ok")])
    first = [{"text": "one", "completed": False}]
    second = [{"text": "one", "completed": True}, {"text": "two", "completed": False}]
    todo = {"id": "item_0", "type": "todo_list"}
    assert ran.events[2:-1] == [
        {"type": "item.started", "item": {**todo, "items": first}},
        {"type": "item.updated", "item": {**todo, "items": second}},
        answer("ok", 1),
        {"type": "item.completed", "item": {**todo, "items": second}},
    ]


async def test_warnings_are_items_before_the_turn(at: Bench) -> None:
    ran = await at.run(ANYWHERE, "--json", "-m", "unknown-model", "-c", "modle=x", "hi")
    assert [event["type"] for event in ran.events] == [
        "thread.started",
        "item.completed",
        "item.completed",
        "turn.started",
        "item.completed",
        "turn.completed",
    ]
    assert [event["item"]["type"] for event in ran.events[1:3]] == ["error", "error"]
    words = [event["item"]["message"] for event in ran.events[1:3]]
    assert "modle" in words[0]
    assert "unknown-model" in words[1]


# -- how it ends


@pytest.mark.parametrize("replies", [FAILED, [fails("server_error", "no such thing")]])
async def test_a_turn_that_fails_is_exit_code_1_and_leaves_no_message(
    at: Bench, replies: JsonValue
) -> None:
    ran = await at.run(*PLAIN, "-o", "last", "hi", replies=replies)
    assert (ran.exit_code, ran.stdout, (at.cwd / "last").exists()) == (1, "", False)
    assert re.findall(r"^ERROR: .*", ran.stderr, re.MULTILINE) == [
        line for line in ran.stderr.splitlines() if "no such thing" in line
    ]


async def test_a_last_message_that_cannot_be_stored_is_reported(at: Bench) -> None:
    """As upstream: the work itself is done."""
    ran = await at.run(*PLAIN, "-o", "nowhere/last", "hi")
    assert (ran.exit_code, ran.stdout) == (0, "done\n")
    assert "Failed to write last message file nowhere/last: No such file" in ran.stderr


def after_first_request(at: Bench, number: int) -> During:
    """Return an action that sends a signal after the first model request."""

    async def act(process: asyncio.subprocess.Process) -> None:
        await at.model.wait_for_request(1)
        process.send_signal(number)

    return act


async def test_ctrl_c_interrupts_the_turn_and_the_thread_can_be_resumed(at: Bench) -> None:
    """Upstream's exit code; upstream prints no event for an interrupted turn."""
    endless = says("never", "m1", ["ne"], asyncio.Event())
    ran = await at.run(
        *JSON, "one", replies=[endless], during=after_first_request(at, signal.SIGINT)
    )
    assert ran.exit_code == 1
    assert "turn.completed" not in ran.stdout
    again = await at.run(*JSON, "resume", ran.thread_id, "two", replies=[says("here", "r2")])
    assert (again.exit_code, again.events[2]) == (0, answer("here"))
    async with spawned([TREADLE, "app-server"], at.home) as client:
        turns = (await client.read(ran.thread_id))["turns"]
    assert [turn["status"] for turn in turns] == ["interrupted", "completed"]


async def test_the_interruption_is_reported_in_text_output(at: Bench) -> None:
    endless = says("never", "m1", [], asyncio.Event())
    ran = await at.run(
        *PLAIN, "one", replies=[endless], during=after_first_request(at, signal.SIGINT)
    )
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.endswith("user\none\nturn interrupted\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, -15)])
async def test_a_signal_ends_the_commands_too(at: Bench, number: int, code: int) -> None:
    ready, held = at.cwd / "ready", at.cwd / "held"
    for fifo in (ready, held):
        os.mkfifo(fifo)
    command = {"cmd": "exec 3>held; echo up >ready; sleep 600"}

    async def act(process: asyncio.subprocess.Process) -> None:
        await asyncio.to_thread(ready.read_bytes)
        process.send_signal(number)

    async with asyncio.TaskGroup() as tasks:
        # The pipe ends when no process holds its other end.
        gone = tasks.create_task(asyncio.to_thread(held.read_bytes))
        replies = [calls("exec_command", command, "c1")]
        ran = await at.run(*FREE, "go", replies=replies, during=act)
    assert (ran.exit_code, gone.result()) == (code, b"")


async def start(
    at: Bench,
    *arguments: str,
    stdin: int,
    stdout: int,
    stderr: int = asyncio.subprocess.PIPE,
) -> asyncio.subprocess.Process:
    """Start the program with our own pipes."""
    return await asyncio.create_subprocess_exec(
        *(TREADLE, *arguments),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=at.cwd,
        env=at.environ(),
    )


async def test_a_signal_before_the_prompt_ends_it_at_once(at: Bench) -> None:
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await start(at, "exec", *JSON, stdin=pipe, stdout=nothing)
    assert process.stderr is not None
    async with asyncio.timeout(25):
        assert await process.stderr.readline() == b"Reading prompt from stdin...\n"
        process.send_signal(signal.SIGINT)
        _, stderr = await process.communicate()
    assert (process.returncode, stderr) == (-signal.SIGINT, b"")


async def test_work_is_abandoned_when_stdout_is_closed(at: Bench) -> None:
    gate = asyncio.Event()
    at.model.plays(says("never", "m1", [], gate))
    reader, writer = os.pipe()
    nothing = asyncio.subprocess.DEVNULL
    process = await start(at, "exec", *JSON, "hi", stdin=nothing, stdout=writer)
    os.close(writer)
    async with asyncio.timeout(25):
        await at.model.wait_for_request(1)
        os.close(reader)
        gate.set()
        _, stderr = await process.communicate()
    assert (process.returncode, stderr) == (1, b"Reading additional input from stdin...\n")


async def test_work_continues_when_stderr_is_closed(at: Bench) -> None:
    gate = asyncio.Event()
    at.model.plays(says("done", "m1", [], gate))
    reader, writer = os.pipe()
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await start(at, "exec", *PLAIN, "hi", stdin=nothing, stdout=pipe, stderr=writer)
    os.close(writer)
    async with asyncio.timeout(25):
        await at.model.wait_for_request(1)
        os.close(reader)
        gate.set()
        stdout, _ = await process.communicate()
    assert (process.returncode, stdout) == (0, b"done\n")


async def test_no_approval_is_requested_whatever_the_policy(at: Bench) -> None:
    call = {"cmd": "true", "sandbox_permissions": "require_escalated", "justification": "x"}
    ran = await at.run(
        *JSON, "-c", "approval_policy=untrusted", "go", replies=[calls("exec_command", call, "c1")]
    )
    assert ran.exit_code == 0
    assert ran.events[3]["item"]["status"] == "declined"
    assert "does not allow requests" in at.model.requests[1].outputs()["c1"]


# -- which settings apply


async def test_folders_of_the_command_line_are_writable(at: Bench, tmp_path: Path) -> None:
    more, other = tmp_path / "more", tmp_path / "other"
    for folder in (more, other):
        folder.mkdir()
    command = {"cmd": f"touch {more}/a; touch {other}/a; touch a"}
    inside = ("-c", "sandbox_workspace_write.exclude_slash_tmp=true")
    ran = await at.run(
        *(*JSON, *inside, "--full-auto", "--add-dir", "../more", "go"),
        replies=[calls("exec_command", command, "c1")],
        TMPDIR=str(at.home),
    )
    assert ran.exit_code == 0
    written = [(folder / "a").exists() for folder in (at.cwd, more, other)]
    assert written == [True, True, False], ran.stdout


@pytest.mark.parametrize(
    ("arguments", "model"),
    [
        (["hi"], "mock-model"),
        (["-c", "model=b", "hi"], "b"),
        (["-c", "model=b", "-m", "a", "hi"], "a"),
        (["-p", "team", "hi"], "of-the-file"),
        (["-p", "team", "-c", "model=b", "hi"], "b"),
        (["-p", "old", "hi"], "of-the-table"),
        (["hi", "-m", "a"], "a"),
        (["-m", "a", "resume", "--last", "hi"], "a"),
        (["resume", "--last", "-m", "a", "hi"], "a"),
    ],
)
async def test_the_model_that_is_named_last_is_used(
    at: Bench, arguments: list[str], model: str
) -> None:
    config = at.home / "config.toml"
    config.write_text(f'{config.read_text()}\n[profiles.old]\nmodel = "of-the-table"\n')
    (at.home / "team.config.toml").write_text('model = "of-the-file"\n')
    ran = await at.run(ANYWHERE, *arguments)
    assert (ran.exit_code, at.model.requests[0].body["model"]) == (0, model)


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["--local-provider", "ollama"], ("gpt-oss:20b", "ollama")),
        (["-c", "oss_provider=lmstudio"], ("openai/gpt-oss-20b", "lmstudio")),
        (["--local-provider", "ollama", "-m", "a"], ("a", "ollama")),
    ],
)
async def test_a_local_model_is_used(
    at: Bench, arguments: list[str], settings: tuple[str, str]
) -> None:
    # A fork without a prompt shows the settings and sends no model request.
    first = await at.run(*JSON, "hi")
    ran = await at.run(ANYWHERE, "--oss", *arguments, "fork", first.thread_id)
    shown = re.findall(r"^(?:model|provider): (.*)", ran.stderr, re.MULTILINE)
    assert (ran.exit_code, tuple(shown)) == (0, settings)


async def test_a_local_model_needs_a_name(at: Bench) -> None:
    ran = await at.run(ANYWHERE, "--oss", "hi")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("Error: No default OSS provider configured.")


async def test_an_unknown_profile_is_refused(at: Bench) -> None:
    """Ours: upstream ignores it, and works under settings that the user did not choose."""
    ran = await at.run(ANYWHERE, "-p", "nope", "hi")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == "Error loading config.toml: config profile `nope` not found\n"


async def test_options_may_precede_the_exec_command(at: Bench) -> None:
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    words = ("-c", "model=a", "exec", ANYWHERE, "hi")
    process = await start(at, *words, stdin=nothing, stdout=pipe)
    stdout, _ = await process.communicate()
    assert (process.returncode, stdout) == (0, b"done\n")
    assert at.model.requests[0].body["model"] == "a"


async def test_a_missing_image_is_refused(at: Bench) -> None:
    """Ours: upstream reports it to the model instead, which answers without having seen it."""
    ran = await at.run(*JSON, "-i", "nope.png", "--", "hi")
    assert (ran.exit_code, at.model.requests) == (1, [])
    assert f"cannot read '{at.cwd / 'nope.png'}'" in ran.stderr


# -- threads


async def test_an_ephemeral_thread_is_not_stored(at: Bench) -> None:
    assert (await at.run(*JSON, "--ephemeral", "hi")).exit_code == 0
    assert list(at.home.rglob("rollout-*")) == []


async def test_threads_of_exec_are_not_listed_by_default(at: Bench) -> None:
    """As upstream: they are listed on request."""
    ran = await at.run(*JSON, "--thread-source", "nightly", "hi")
    async with spawned([TREADLE, "app-server"], at.home) as client:
        usual = await client.request("thread/list", {})
        listing = await client.request("thread/list", {"sourceKinds": ["exec"]})
    assert usual["data"] == []
    threads = [(each["id"], each["source"], each["threadSource"]) for each in listing["data"]]
    assert threads == [(ran.thread_id, "exec", "nightly")]


async def test_a_thread_is_resumed_by_its_name(at: Bench) -> None:
    first = await at.run(*JSON, "one", replies=[says("1", "r1")])
    await at.run(*JSON, "another", replies=[says("1", "r2")])
    async with spawned([TREADLE, "app-server"], at.home) as client:
        await client.request("thread/name/set", {"threadId": first.thread_id, "name": "the work"})
    ran = await at.run(*JSON, "resume", "the work", "two")
    assert ran.thread_id == first.thread_id
    assert at.model.requests[2].conversation()[-1] == ("user", "two")


async def test_an_unknown_name_is_refused(at: Bench) -> None:
    """Ours: upstream starts a new thread, as if no name had been given."""
    ran = await at.run(*JSON, "resume", "nope", "two")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (1, "", "Error: Session not found: nope\n")


async def test_the_last_thread_is_the_last_one_of_this_folder(at: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    first = await at.run(*JSON, "one", replies=[says("1", "r1")])
    second = await at.run(*JSON, "-C", str(other), "two", replies=[says("2", "r2")])
    here = await at.run(*JSON, "resume", "--last", "three", replies=[says("3", "r3")])
    there = await at.run(*JSON, "-C", str(other), "resume", "--last", "four")
    assert [here.thread_id, there.thread_id] == [first.thread_id, second.thread_id]


async def test_a_resumed_thread_uses_the_current_settings(at: Bench, tmp_path: Path) -> None:
    first = await at.run(*JSON, "-s", "read-only", "one", replies=[says("1", "r1")])
    other = tmp_path / "other"
    other.mkdir()
    call = calls("exec_command", {"cmd": "pwd; touch written"}, "c1")
    again = await at.run(*FREE, "-C", str(other), "resume", first.thread_id, "two", replies=[call])
    done = again.events[3]["item"]
    assert (done["exit_code"], done["aggregated_output"]) == (0, f"{other}\n")
    assert (other / "written").exists()


# -- the command line


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["resume", "--help"]])
async def test_help_lists_the_options(at: Bench, words: list[str]) -> None:
    ran = await at.run(*words)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.startswith("usage: treadle exec [OPTIONS] [PROMPT]\n")
    assert "--output-schema FILE" in ran.stdout


async def test_version_is_printed(at: Bench) -> None:
    ran = await at.run("--version")
    assert (ran.exit_code, ran.stdout) == (0, f"treadle-exec {treadle.__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["resume"],
        ["--last", "hi"],
        ["--uncommitted"],
        ["resume", "--last", "a", "b"],
        ["review", "--title", "t", "--uncommitted"],
        ["-m"],
        ["\udcff"],
    ],
)
async def test_invalid_arguments_are_exit_code_2(at: Bench, arguments: list[str]) -> None:
    ran = await at.run(ANYWHERE, *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("usage: treadle exec")


async def test_a_schema_is_read_as_json(at: Bench) -> None:
    (at.cwd / "schema").write_text(json.dumps({"type": "object"}))
    ran = await at.run(*PLAIN, "--output-schema", "schema", "hi", replies=[says("{}")])
    assert (ran.exit_code, ran.stdout) == (0, "{}\n")
    (at.cwd / "schema").write_text("{nope")
    ran = await at.run(*PLAIN, "--output-schema", "schema", "hi")
    assert ran.exit_code == 1
    assert "Output schema file schema is not valid JSON" in ran.stderr
