"""`treadle run --unattended`: its output and its exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.client.fake import ROOT, ServerLog, message_item, turn
from tests.harness.processes import TREADLE, environment
from tests.unattended.fake import END, turn_prompt, usage
from tests.unattended.fake import command as fake_command
from treadle.protocol.base import JsonValue

SECONDS = 50
ENDLESS = '{"responses": [["still at it"]], "then": "repeat"}'
INPUT = "item/tool/requestUserInput"
SAID = ["notify", "item/completed", {"item": message_item("Hello"), "completedAtMs": 1}]
FAILED = [
    "notify",
    "turn/completed",
    {"turn": turn("failed", error={"message": "no", "codexErrorInfo": "unauthorized"})},
]
ASKED = ["ask", 1, INPUT, {"questions": [{"id": "q", "header": "h", "question": "why?"}]}]


def fake(home: Path) -> list[str]:
    """Return options that name the server of the tests."""
    words = " ".join(fake_command("steps", home.parent / "heard"))
    return ["--command", words, "--max-failures", "0"]


def run(
    home: Path, *arguments: str, stdin_text: str | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run the command and wait for it."""
    return subprocess.run(
        [TREADLE, "run", "--unattended", *arguments],
        env=environment(home, PYTHONPATH=str(ROOT), **extra),
        cwd=home,
        input=stdin_text,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_our_own_server_and_its_model_are_the_defaults(home: Path) -> None:
    (home / "script.json").write_text('[["I am done."]]')
    done = run(home, "hello", TREADLE_SCRIPT=str(home / "script.json"))
    assert (done.returncode, done.stderr) == (0, "")
    first, *others = done.stdout.splitlines()
    thread_id = others[-1].rpartition(" ")[2]
    assert first.startswith(f"turn {thread_id}-")
    assert others[0] == "agent: I am done."


def test_text_output_shows_what_happened(home: Path) -> None:
    done = run(home, *fake(home), turn_prompt(ASKED, SAID, usage(7, 7), END))
    assert done.stdout.splitlines() == [
        "turn thr-1-turn-1",
        f"tool input auto answered: {INPUT}",
        "agent: Hello",
        "turn completed, 7 tokens",
        "idle: 1 turns, 7 tokens, thread thr-1",
    ]
    assert (done.returncode, done.stderr) == (0, "")


def test_text_from_others_neither_controls_the_terminal_nor_imitates_a_line(home: Path) -> None:
    ran = {"type": "commandExecution", "id": "c", "command": "rm x #\x1b[2K\r\nls", "cwd": "/",
           "commandActions": [], "status": "completed", "exitCode": 0}  # fmt: skip
    message = message_item("Hello\x1b[2J\nturn completed, 7 tokens\u202e")
    steps = [
        ["notify", "item/completed", {"item": item, "completedAtMs": 1}] for item in (ran, message)
    ]
    steps.append(["notify", "warning", {"message": "odd\x9b1A"}])
    done = run(home, *fake(home), turn_prompt(*steps, usage(7, 7), END))
    assert done.stdout.splitlines()[1:-2] == [
        "$ rm x #\\x1b[2K\\r\\nls -> 0",
        "agent: Hello\\x1b[2J",
        "  | turn completed, 7 tokens\\u202e",
        "! odd\\x9b1A",
    ]
    assert (done.returncode, done.stderr) == (0, "")


def test_json_output_has_a_line_for_each_event(home: Path) -> None:
    done = run(home, "--json", *fake(home), "-", stdin_text=turn_prompt(SAID, usage(7, 7), END))
    events: list[JsonValue] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["event"] for each in events] == [
        "session_started",
        *["notification"] * 4,
        "turn_completed",
        "session_ended",
        "run_ended",
    ]
    assert events[2]["payload"]["item"]["text"] == "Hello"
    assert events[-1] == {
        "event": "run_ended",
        "ending": "idle",
        "exitCode": 0,
        "threadId": "thr-1",
        "turns": 1,
        "failures": 0,
        "usage": {
            "inputTokens": 7,
            "cachedInputTokens": 0,
            "outputTokens": 0,
            "reasoningOutputTokens": 0,
            "totalTokens": 7,
        },
        "agentMessage": "Hello",
    }


@pytest.mark.parametrize(
    ("steps", "options", "exit_code", "kind"),
    [
        ([FAILED], [], 10, "turn_failed"),
        ([], ["--turn-seconds", "0.3"], 12, "turn_timeout"),
        ([], ["--stall-seconds", "0.3"], 13, "stalled"),
        ([ASKED, END], ["--questions", "block"], 14, "turn_input_required"),
        ([usage(50, 50), END], ["--max-tokens", "10"], 16, "budget_exceeded"),
        ([["exit", 4]], [], 21, "port_exit"),
        ([END], ["--workspace-root", "."], 30, "invalid_workspace_cwd"),
    ],
)
def test_the_exit_code_names_the_kind_of_failure(
    home: Path, steps: list[list[JsonValue]], options: list[str], exit_code: int, kind: str
) -> None:
    done = run(home, *options, *fake(home), turn_prompt(*steps))
    assert done.returncode == exit_code
    assert done.stderr.startswith(f"Error: {kind}: ")


def test_a_missing_server_program_is_reported(home: Path) -> None:
    done = run(home, "--command", "/no/such/server", "hello")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        20,
        "Error: codex_not_found: could not start '/no/such/server': No such file or directory",
    )


def test_turns_are_run_until_a_command_succeeds(home: Path) -> None:
    (home / "script.json").write_text(ENDLESS)
    check = "echo x >> count; test $(wc -l < count) -ge 3"
    done = run(home, "--until", check, "go", TREADLE_SCRIPT=str(home / "script.json"))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("done: 3 turns")


def test_a_check_that_never_succeeds_has_its_own_exit_code(home: Path) -> None:
    (home / "script.json").write_text(ENDLESS)
    options = ["--until", "false", "--max-turns", "2", "go"]
    done = run(home, *options, TREADLE_SCRIPT=str(home / "script.json"))
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1].startswith("max_turns: 2 turns")


def test_questions_can_be_answered_in_the_terminal(home: Path) -> None:
    done = run(
        home, "--questions", "ask", *fake(home), turn_prompt(ASKED, END), stdin_text="because\n"
    )
    assert done.returncode == 0
    assert "why?" in done.stderr
    assert ServerLog(home.parent / "heard").answers() == {
        1: {"answers": {"q": {"answers": ["because"]}}}
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--questions", "ask", "-"], "--questions ask needs stdin"),
        (["  "], "prompt is empty"),
        ([os.fsdecode(b"\xff")], "not valid UTF-8"),
    ],
)
def test_invalid_arguments_are_refused(home: Path, arguments: list[str], words: str) -> None:
    done = run(home, *arguments, stdin_text="x")
    assert done.returncode == 2
    assert words in done.stderr


def test_a_run_must_be_declared_unattended(home: Path) -> None:
    done = subprocess.run(
        [TREADLE, "run", "hello"],
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--unattended" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_turn_the_server_and_the_run(home: Path, number: int) -> None:
    async with asyncio.timeout(SECONDS):
        process = await asyncio.create_subprocess_exec(
            *[TREADLE, "run", "--unattended", *fake(home), turn_prompt()],
            env=environment(home, PYTHONPATH=str(ROOT)),
            cwd=home,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"turn thr-1-turn-1\n"
        process.send_signal(number)
        await process.stdout.read()
        assert await process.wait() == 128 + number
    assert len(ServerLog(home.parent / "heard").calls("turn/interrupt")) == 1
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--url", "http://127.0.0.1:1"],
            "invalid server URL 'http://127.0.0.1:1': use ws://, wss:// or unix://",
        ),
        (["--stall-seconds", "-5"], "--stall-seconds must not be negative"),
        (["--command", ""], "invalid server []: must not be empty"),
        (["--command", "codex 'app-server"], "No closing quotation"),
        (["--stall-seconds", "nan"], "--stall-seconds must be a finite number"),
        (["--retry-seconds", "inf"], "--retry-seconds must be a finite number"),
        (["--read-seconds", "0"], "--read-seconds must be positive"),
        (["--max-turns", "0"], "--max-turns must be positive"),
        (["--max-tokens", "-5"], "--max-tokens must be positive"),
        (["--token-env", "NOT_SET_AT_ALL", "--url", "ws://127.0.0.1:1"], "NOT_SET_AT_ALL is not"),
        (
            ["--state", "no-folder/state.json"],
            "--state: 'no-folder/state.json' is not a valid file path",
        ),
        (["--state", "."], "--state: '.' is not a valid file path"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_contradictory_arguments_are_refused_before_anything_is_done(
    home: Path, arguments: list[str], words: str
) -> None:
    done = run(home, *arguments, "hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
    assert words in done.stderr
