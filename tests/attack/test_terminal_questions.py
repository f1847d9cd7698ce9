"""Approvals in a terminal: what is shown is what runs, whatever the model or a server sends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.client.fake import ROOT, ServerLog
from tests.harness.processes import TREADLE, environment
from tests.harness.pseudo_terminal import converse
from tests.unattended.fake import END, turn_prompt
from tests.unattended.fake import command as fake_command
from treadle.protocol.base import JsonValue

CONFIG = """
sandbox_mode = "workspace-write"
[features]
exec_permission_approvals = true
[sandbox_workspace_write]
exclude_slash_tmp = true
"""
STOP = "[s]top: "
COMMAND = "item/commandExecution/requestApproval"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f]")
FORGED = "ls\n\n[y]es, [a]lways, [N]o, [s]top: n\n\nRun this command?\n  command:\n  | ls"


def shown_approval(home: Path, policy: str, arguments: JsonValue, reply: str = "n") -> str:
    """Return what the terminal shows when the model wants to run a command."""
    (home / "config.toml").write_text(CONFIG)
    workspace = home.parent / "workspace"
    workspace.mkdir()
    call = {"type": "calls", "tool": "exec_command", "arguments": arguments, "call_id": "c1"}
    env = environment(home, TREADLE_SCRIPT=json.dumps([[call], ["done"]]))
    options = ["--sandbox", "workspace-write", "--approval-policy", policy, "--questions", "ask"]
    return converse(
        [TREADLE, "run", "--unattended", *options, "go"], [(STOP, reply)], cwd=workspace, env=env
    )


def test_escape_sequences_cannot_replace_the_command(home: Path) -> None:
    planted = home.parent / "planted"
    command = f"touch {planted} #\x1b[2K\r  /bin/bash -lc 'ls -l'\u202e"
    shown = shown_approval(home, "untrusted", {"cmd": command, "login": True})
    assert not CONTROL.search(shown), ascii(shown)
    rows = "".join(re.findall(r"^  [|:] (.*)$", shown, re.MULTILINE))
    assert f"touch {planted} #\\x1b[2K\\r  /bin/bash" in rows
    assert "\\u202e" in rows
    assert "escapes such as" in shown
    assert "WITHOUT the sandbox" in shown
    assert not planted.exists()


def test_a_justification_cannot_erase_the_command_and_is_attributed_to_the_model(
    home: Path,
) -> None:
    planted = home.parent / "planted"
    text = "x\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K  ls -l\n" + FORGED
    arguments = {
        "cmd": f"touch {planted}",
        "sandbox_permissions": "require_escalated",
        "justification": text,
    }
    shown = shown_approval(home, "on-request", arguments)
    assert not CONTROL.search(shown), ascii(shown)
    assert "the model says (not checked):\n  | x\\x1b[2K" in shown
    assert "WITHOUT the sandbox" in shown
    assert len(re.findall(r"^\[y\]es", shown, re.MULTILINE)) == 1
    assert len(re.findall(r"^Run this command", shown, re.MULTILINE)) == 1


def test_additional_permissions_are_shown_and_cannot_be_approved_for_the_session(
    home: Path,
) -> None:
    arguments = {
        "cmd": "touch /planted",
        "sandbox_permissions": "with_additional_permissions",
        "additional_permissions": {"file_system": {"write": ["/"]}, "network": {"enabled": True}},
        "justification": "list files",
    }
    shown = shown_approval(home, "on-request", arguments)
    assert "  permissions beyond the sandbox:\n" in shown
    assert re.search(r"^  \| write: /( \(the whole file system\))?$", shown, re.MULTILINE)
    assert "  | network: all hosts\n" in shown
    assert "[a]lways" not in shown


def fake_run(
    home: Path, questions: list[tuple[str, JsonValue]], replies: list[tuple[str, str]]
) -> tuple[str, dict[object, JsonValue]]:
    """Return what the terminal shows for these server requests at once, and what is answered."""
    server = " ".join(fake_command("steps", home.parent / "heard"))
    steps = [["ask", number, *question] for number, question in enumerate(questions, 1)]
    arguments = ["--command", server, "--max-failures", "0", "--questions", "ask"]
    shown = converse(
        [TREADLE, "run", "--unattended", "--approval-policy", "on-request", *arguments,
         turn_prompt(*steps, END)],
        replies,
        cwd=home,
        env=environment(home, PYTHONPATH=str(ROOT)),
    )  # fmt: skip
    return shown, ServerLog(home.parent / "heard").answers()


HOST: tuple[str, JsonValue] = (
    COMMAND,
    {
        "itemId": "network#local#https_connect#evil.example#8443#1",
        "networkApprovalContext": {"host": "evil.example", "protocol": "https"},
        "availableDecisions": ["accept", "acceptForSession", "cancel"],
        "reason": "evil.example is not in the allowed_domains",
    },
)
PATCH: tuple[str, JsonValue] = (
    "applyPatchApproval",
    {
        "callId": "c",
        "conversationId": "thr-1",
        "fileChanges": {
            "/w/a\x1b[2K\n  | add /w/harmless": {"type": "add", "content": "x\x1b]0;t\x07\ny"},
            "/w/b": {"type": "update", "unified_diff": "-1\n+2\n", "move_path": "/etc/c"},
        },
        "grantRoot": "/w\u202e",
        "reason": "because\r",
    },
)
PERMISSIONS: tuple[str, JsonValue] = (
    "item/permissions/requestApproval",
    {
        "cwd": "/w",
        "permissions": {
            "fileSystem": {
                "entries": [
                    {"access": "write", "path": {"type": "special", "value": {"kind": "root"}}},
                    {"access": "read", "path": {"type": "path", "path": "/a\n  | read: /b"}},
                ]
            }
        },
        "reason": "\x9b2J",
    },
)
INPUT: tuple[str, JsonValue] = (
    "item/tool/requestUserInput",
    {
        "isBlocking": True,
        "questions": [
            {
                "id": "q",
                "header": "h",
                "question": f"which\x1b[2J?\n{FORGED}",
                "options": [{"label": "no\x1b[1A\nRun", "description": "d\x07"}],
            }
        ],
    },
)
URL: tuple[str, JsonValue] = (
    "mcpServer/elicitation/request",
    {
        "serverName": "s\x1b",
        "mode": "url",
        "message": "hello\x1b[3A",
        "url": "https://good.example\u202e@evil.example/",
        "elicitationId": "e",
    },
)


@pytest.mark.parametrize(
    ("question", "reply", "lines", "answer"),
    [
        (HOST, (STOP, "y"), ["  | https://evil.example:8443"], {"decision": "accept"}),
        (
            PATCH,
            (STOP, "y"),
            [
                "  | add /w/a\\x1b[2K\\n  | add /w/harmless",
                "  | update /w/b -> /etc/c",
                "  | x\\x1b]0;t\\x07",
                "  | /w\\u202e",
                "  | because\\r",
            ],
            {"decision": "approved"},
        ),
        (
            PERMISSIONS,
            ("[N]o: ", "n"),
            ["  | write: / (the whole file system)", "  | read: /a\\n  | read: /b", "  | \\x9b2J"],
            {"permissions": {}, "scope": "turn", "strictAutoReview": None},
        ),
        (
            INPUT,
            ("\n> ", "1"),
            ["  | which\\x1b[2J?", "  | 1. no\\x1b[1A\\nRun - d\\x07"],
            {"answers": {"q": {"answers": ["no\x1b[1A\nRun"]}}},
        ),
        (
            URL,
            (STOP, "s"),
            ["  | s\\x1b", "  | hello\\x1b[3A", "  | https://good.example\\u202e@evil.example/"],
            {"action": "cancel", "_meta": None, "content": None},
        ),
    ],
    ids=["host", "files", "permissions", "input", "url"],
)
def test_each_kind_of_server_request_shows_what_it_asks_for(
    home: Path,
    question: tuple[str, JsonValue],
    reply: tuple[str, str],
    lines: list[str],
    answer: JsonValue,
) -> None:
    shown, answers = fake_run(home, [question], [reply])
    assert not CONTROL.search(shown), ascii(shown)
    assert set(lines) <= set(shown.split("\n")), shown
    assert "None" not in shown
    assert answers == {1: answer}


def test_questions_are_shown_one_by_one_and_a_long_command_can_be_shown_whole(home: Path) -> None:
    long = "true " + "a" * 9000 + "; rm x; " + "b" * 9000
    questions: list[tuple[str, JsonValue]] = [
        (COMMAND, {"itemId": "i1", "command": long, "cwd": "/w"}),
        (COMMAND, {"itemId": "i2", "command": "second", "cwd": "/w"}),
    ]
    replies = [(STOP, "w"), (STOP, "n"), (STOP, "y")]
    shown, answers = fake_run(home, questions, replies)
    first, whole, second = re.split(r"^Run this command\?$", shown, flags=re.MULTILINE)[1:]
    assert "characters in" in first
    assert "[w]hole text, [N]o" in first
    assert "rm x" not in first
    assert "rm x" in whole.replace("\n  : ", "")
    assert "second" not in whole
    assert "| second" in second
    assert answers == {1: {"decision": "decline"}, 2: {"decision": "accept"}}


def test_input_typed_before_a_question_is_shown_does_not_answer_it(home: Path) -> None:
    questions: list[tuple[str, JsonValue]] = [
        (COMMAND, {"itemId": f"i{number}", "command": "x", "cwd": "/w"}) for number in (1, 2)
    ]
    _shown, answers = fake_run(home, questions, [(STOP, "n\ny"), (STOP, "n")])
    assert answers == {1: {"decision": "decline"}, 2: {"decision": "decline"}}
