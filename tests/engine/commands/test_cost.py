"""What judging a command costs: bounded, and in proportion to its length up to the bound."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

import pytest

from treadle.engine.commands.actions import actions_of
from treadle.engine.commands.dangers import is_dangerous, is_forced_removal
from treadle.engine.commands.rule_file import read_rules
from treadle.engine.commands.rules import Rules, amendment_for
from treadle.protocol.item import UnknownCommandAction
from treadle.shell.safe import is_known_safe
from treadle.shell.scripts import display
from treadle.shell.syntax import MAX_SCRIPT, parse

# Each is repeated until the script is long enough.
PIECES: Final = {
    "commands": "ls a; ",
    "pipes": "a|",
    "words": "a ",
    "quotes": "'a'\"b\"",
    "expansions": "$x ",
    "substitutions": "$(a) ",
    "backquotes": "`a` ",
    "nesting": "$(",
    "groups": "(",
    "negations": "! ",
    "conditions": "if ",
    "documents": "cat <<E\nx\nE\n",
    "unclosed documents": "cat <<E; ",
    "empty lines": "\n",
    "comments": "# a\n",
    "subscripts": "a[",
    "commands with subscripts": "a[;",
    "blanks": " ",
    "continued lines": "\\\n",
    "escapes": "\\a",
    "evaluations": "eval ",
    "starters": "env ",
    "shells": "bash -c ",
    "removals": "rm a;",
    "patterns": "*? ",
    "paths": "a/",
    "letters": "a",
    "apostrophes": "'$",
    "carets": "^'",
    "tests": "|[[ a ",
    "braces": "{a,b}",
    "ranges": "{..",
    "pattern programs": "r?;",
    "assignments": "a= ",
    "variable programs": "$x;",
}
RULES: Final = Rules(
    [
        read_rules(
            "\n".join(
                f'prefix_rule(pattern=["p{number}", "x"], decision="{decision}")'
                for number in range(300)
                for decision in ("allow", "forbidden")
            ),
            "default.rules",
        )
    ]
)
MAX_CALLS: Final = 60_000


def judge(argv: list[str], rules: Rules) -> None:
    """Do with a command all that is done before it runs."""
    actions_of(argv, "/")
    display(argv)
    rules.check(argv)
    is_dangerous(argv)
    is_forced_removal(argv)
    is_known_safe(argv)
    amendment_for(argv, rules)


def calls_of(act: Callable[[], None]) -> int:
    """Count the calls of functions, in Python and in C, that something takes."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("ending", ["", "((("])
@pytest.mark.parametrize("length", [MAX_SCRIPT - 10, 1_000_000])
def test_judging_a_command_takes_a_bounded_number_of_calls(
    name: str, ending: str, length: int
) -> None:
    piece = PIECES[name]
    script = piece * (length // len(piece)) + ending
    judge(["bash", "-lc", "((("], RULES)  # what is done once for all commands

    assert calls_of(lambda: judge(["bash", "-lc", script], RULES)) < MAX_CALLS


def test_a_script_too_long_to_run_is_not_parsed() -> None:
    script = f"ls {'a' * MAX_SCRIPT}"
    argv = ["bash", "-lc", script]

    assert parse(script) is None
    assert not is_known_safe(argv)
    assert actions_of(argv, "/") == [UnknownCommandAction(command=script)]


def test_a_command_is_quoted_and_parsed_once() -> None:
    argv = ["bash", "-lc", "cat 'unusual words' | head"]
    judge(argv, Rules())

    assert calls_of(lambda: judge(argv, Rules())) < calls_of(
        lambda: judge(["bash", "-lc", "cat 'other words' | head"], Rules())
    )
