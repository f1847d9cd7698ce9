"""Which variables commands see, and which shell runs them."""

from __future__ import annotations

import pytest

from treadle.engine.terminals.shell import allowed, environment, find_shell
from treadle.protocol.base import JsonValue

ENVIRON = {"PATH": "/bin", "HOME": "/h", "API_KEY": "k", "github_token": "t", "EDITOR": "ed"}


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ({}, {"PATH", "HOME", "API_KEY", "github_token", "EDITOR"}),
        ({"inherit": "core"}, {"PATH", "HOME"}),
        ({"inherit": "none"}, set()),
        ({"ignore_default_excludes": False}, {"PATH", "HOME", "EDITOR"}),
        ({"exclude": ["*_token", "HO*"]}, {"PATH", "API_KEY", "EDITOR"}),
        ({"inherit": "none", "set": {"A": "1"}}, {"A"}),
        ({"include_only": ["path", "A"], "set": {"A": "1", "B": "2"}}, {"PATH", "A"}),
    ],
)
def test_a_policy_decides_which_variables_are_seen(policy: JsonValue, names: set[str]) -> None:
    """Upstream: inherit, leave out, set, and last keep only what is listed."""
    assert set(allowed(policy, ENVIRON)) == names


def test_a_command_receives_its_environment() -> None:
    seen = environment({"inherit": "none"}, "t1", call_id="c1", has_network=False, environ=ENVIRON)
    assert seen["CODEX_THREAD_ID"] == "t1"
    assert seen["CODEX_TOOL_CALL_ID"] == "c1"
    assert seen["CODEX_SANDBOX_NETWORK_DISABLED"] == "1"
    assert seen["PAGER"] == "cat"


def test_commands_of_the_user_keep_their_colours() -> None:
    assert environment({}, "t1", environ={"PAGER": "less"}) == {
        "PAGER": "less",
        "CODEX_THREAD_ID": "t1",
        "CODEX_SESSION_ID": "t1",
    }


@pytest.mark.parametrize("name", ["fish", "/bin/fish", "python3", ""])
def test_a_program_that_is_not_a_shell_does_not_run(name: str) -> None:
    assert find_shell(name) == "/bin/sh"


def test_a_shell_in_another_folder_is_not_run() -> None:
    assert find_shell("/somewhere/bash") != "/somewhere/bash"
    assert find_shell("/bin/sh") == "/bin/sh"
