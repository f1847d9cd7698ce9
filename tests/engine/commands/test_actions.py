"""The actions that commands are reported with: as in release 0.163.0, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import pytest

from treadle.engine.commands.actions import actions_of
from treadle.protocol.item import (
    CommandAction,
    ListFilesCommandAction,
    ReadCommandAction,
    SearchCommandAction,
    UnknownCommandAction,
)

# Upstream: each script was run by the reference in the folder /h/ws, with `/bin/bash -lc`.
OBSERVED: Final = msgspec.json.decode(
    (Path(__file__).parent / "observed_actions.json").read_bytes(),
    type=dict[str, list[CommandAction]],
)


@pytest.mark.parametrize("script", OBSERVED)
def test_a_script_has_the_same_actions_as_in_the_reference(script: str) -> None:
    assert actions_of(["/bin/bash", "-lc", script], "/h/ws") == OBSERVED[script]


@pytest.mark.parametrize(
    ("argv", "actions"),
    [
        (["cat", "a b"], [ReadCommandAction(command="cat 'a b'", name="a b", path="/ws/a b")]),
        (["ls", "src"], [ListFilesCommandAction(command="ls src", path="src")]),
        (["rg", "x", "y/z"], [SearchCommandAction(command="rg x y/z", query="x", path="z")]),
        (["touch", "a b"], [UnknownCommandAction(command="touch 'a b'")]),
        (
            ["bash", "-l", "-c", "cat a"],
            [ReadCommandAction(command="cat a", name="a", path="/ws/a")],
        ),
        (["sed", "-n", "1p"], [UnknownCommandAction(command="sed -n 1p")]),
    ],
)
def test_a_command_without_a_shell_has_actions_too(
    argv: list[str], actions: list[CommandAction]
) -> None:
    assert actions_of(argv, "/ws") == actions


@pytest.mark.parametrize(
    ("script", "command"),
    [("cat a.txt;", "cat a.txt"), ("cat \\\n a.txt", "cat a.txt"), ("cat a.txt\n", "cat a.txt")],
)
def test_a_read_is_reported_without_its_surroundings(script: str, command: str) -> None:
    """Ours: the reference reports `cat 'a.txt;'` here, and an empty word for the line's end."""
    actions = actions_of(["bash", "-lc", script], "/ws")

    assert actions == [ReadCommandAction(command=command, name="a.txt", path="/ws/a.txt")]


def test_the_observed_table_is_not_all_alike() -> None:
    kinds = {type(action) for actions in OBSERVED.values() for action in actions}

    assert kinds == {
        ReadCommandAction,
        ListFilesCommandAction,
        SearchCommandAction,
        UnknownCommandAction,
    }
