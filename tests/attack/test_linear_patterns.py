"""Text that others choose is processed in linear time, however it is constructed.

Each text here once took more than a minute, which is longer than a test may take.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from tests.model.double import collect, request, user
from treadle.engine.commands import unclear
from treadle.engine.commands.every import every_command
from treadle.engine.commands.unclear import CommandTooComplex, Glob, fitting
from treadle.engine.conversation.plans.proposed import CLOSE, OPEN, split
from treadle.model.scripted.model import ScriptedModel
from treadle.protocol.explain import explain
from treadle.protocol.item import CommandExecutionThreadItem, ItemCompletedNotification
from treadle.shell.safe import is_known_safe
from treadle.shell.syntax import MAX_SCRIPT, parse
from treadle.store.rollout.item_lines import legacy_item
from treadle.testing.comparing import differences
from treadle.testing.redaction import REDACTED
from treadle.unattended.graphql import operations


def test_the_format_of_printf() -> None:
    zeros = "0" * (MAX_SCRIPT - 100)
    assert not is_known_safe(["printf", f"%{zeros}"])
    assert is_known_safe(["printf", f"%{zeros}9.9d", "1"])


def test_a_document_whose_end_begins_with_tabs() -> None:
    """No line ends it: the shell strips the tabs first. One took seconds."""
    tabs = "\t" * (MAX_SCRIPT // 2 - 100)
    for name in range(50):
        assert parse(f"cat <<-'{tabs}{name}'\n{tabs}\nx") is None
    assert parse("cat <<-'\tx'\n\tx\n") is None
    assert parse("cat <<-'x'\n\t\tx") is not None


class _Choice(msgspec.Struct):
    x: Literal["a"]


def test_a_value_that_is_not_allowed() -> None:
    """It was parsed as the path of the error."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"x": " - at `$" + "[" * 1_000_000}, _Choice)
    assert explain(caught.value, _Choice).path == "x"


@pytest.mark.parametrize("start", ['"', '"""'])
def test_a_query_with_an_unterminated_string(start: str) -> None:
    assert operations("query { a } " + start + '\\"' * 1_000_000) == ["query"]


def test_a_command_with_an_unterminated_string() -> None:
    command = '"' + '\\"' * 1_000_000
    item = CommandExecutionThreadItem(
        id="1", command=command, command_actions=[], cwd="/", status="completed"
    )
    (event,) = legacy_item(ItemCompletedNotification(0, item, "thread", "turn"))
    assert event["command"] == [command]


def test_a_message_with_many_plans() -> None:
    count = 500_000
    assert split(f"a{OPEN}\nb{CLOSE}\n" * count) == ("a" * count, "b" * count)


@pytest.mark.parametrize("text", ["\n" * 1_000_000, "`" * 1_000_000])
async def test_a_request_to_the_demonstration(text: str) -> None:
    tools = [{"type": "function", "name": "shell_command", "parameters": {}}]
    assert await collect(ScriptedModel(), request(user(text), tools=tools))


def test_a_request_with_redacted_secrets() -> None:
    text = "a" * 1_000_000
    assert list(differences(f"a{REDACTED}a{REDACTED}a", text)) == []
    assert list(differences(f"{REDACTED}a" * 5 + "b", text)) != []
    assert list(differences(f"ab{REDACTED}bc", "abc")) != []


def test_a_pattern_in_the_place_of_a_program() -> None:
    """It is compared with the names in rules; eight stars took minutes for one of these."""
    name = "e" * 60 + "x"
    assert fitting(Glob("*e" * 8 + "a"), [name]) == []
    assert fitting(Glob("*e" * 7 + "*x"), [name, "git"]) == [name]
    assert fitting(Glob("g*" + "t" * 2_000), ["git"]) == ["git"]  # too long to be matched


@pytest.mark.parametrize("before", ["", "((( "], ids=["understood", "not understood"])
@pytest.mark.parametrize("between", [" ", "\n"], ids=["words", "commands"])
def test_lists_in_braces(before: str, between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of thousands of lists expanded to 512 words before they were counted."""
    words: list[str] = []
    real = unclear.marked

    def counting(text: str) -> str:
        words.append(text)
        return real(text)

    monkeypatch.setattr(unclear, "marked", counting)
    lists = between.join(["{a,b}" * 9 + "x"] * 100)
    with pytest.raises(CommandTooComplex):
        list(every_command(["bash", "-c", f"{before}{lists}"], {"git"}))
    assert len(words) < 12_000


def test_many_tests_in_a_script_that_cannot_be_parsed() -> None:
    """Each was searched for its end, and all of them again for each judgement."""
    with pytest.raises(CommandTooComplex):
        list(every_command(["bash", "-c", "((( " + "[[ " * 30_000], {"git"}))
