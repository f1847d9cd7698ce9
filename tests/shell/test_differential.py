"""Our parser beside tree-sitter's: what ours accepts, both read the same way."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from operator import eq
from typing import Final

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.harness import bash_grammar
from tests.shell.scripts_to_try import PIECES, SEEDS
from treadle.shell.syntax import ParsedScript, parse
from treadle.shell.words import Word

# `TREADLE_FUZZ=100000 pytest tests/shell/test_differential.py` runs longer, with other seeds.
EXAMPLES: Final = int(os.environ.get("TREADLE_FUZZ", "0"))
LOOKING: Final = settings(
    max_examples=EXAMPLES or 500,
    derandomize=not EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

built = st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map("".join)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Return one of the scripts of the suite, with some of its characters changed."""
    script = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(script)))
        removed = draw(st.integers(0, 2))
        script = script[:at] + draw(st.sampled_from(["", *PIECES])) + script[at + removed :]
    return script


@pytest.mark.timeout(0 if EXAMPLES else 60)
@LOOKING
@given(st.one_of(built, mutated()))
@example("ls > a b; cat 'x y'z")
def test_both_parsers_find_the_same_commands(script: str) -> None:
    ours = parse(script)
    assume(ours is not None and (script in SEEDS or not _GRAMMAR_IS_WRONG.search(script)))
    theirs = bash_grammar.read(script)
    # The grammar cannot parse some scripts that bash accepts.
    assume(theirs is not None)

    assert not differences(ours, theirs)


def differences(ours: ParsedScript | None, theirs: bash_grammar.Reading | None) -> list[str]:
    """Return what one parser has found and the other has not."""
    if ours is None or theirs is None or theirs.has_special:
        return []
    kinds = theirs.kinds
    reasons = sorted(kinds & bash_grammar.REFUSED)
    # Conditions and loops are never safe, so their parts are not compared.
    if kinds & bash_grammar.CONTROL or ours.has_control:
        return reasons if ours.has_control else [*reasons, "control"]
    # The grammar parses `1=` and the like as assignments.
    names = [command.words[0].text for command in ours.commands if command.words]
    is_assigned = any(command.has_assignments for command in ours.commands)
    has_odd_name = any("=" in name for name in names)
    if theirs.has_assignments and not is_assigned and not has_odd_name:
        reasons.append("assignment")
    if theirs.redirections > sum(len(command.redirections) for command in ours.commands):
        reasons.append("redirection")
    if ours.is_plain and theirs.redirections:
        reasons.append("not plain")
    if theirs.has_assignments and has_odd_name:
        return reasons
    return [*reasons, *map(str, filter(None, _unmatched(ours, theirs.commands)))]


# It ends words at an escape or a backquote, parses the last digit of a word as a stream, negates
# where `!` begins a word, differs in brackets and braces, does not know a literal dollar sign, and
# fails in here-documents that are not plain. `test_scripts.py` compares these with bash itself.
_GRAMMAR_IS_WRONG: Final = re.compile(
    r"""<<(?!<)|\\|\S`\S|[^\s<>&|;()][0-9]+[<>]|!\S|!\s+!|[\[\]é]|\b0[<>]|(?<!\$)\{\S|!\s*\{|\w\$|\$[^A-Za-z_({`]|\$$"""
)


def _unmatched(
    script: ParsedScript, commands: list[list[str | None]]
) -> tuple[list[list[str]], list[list[str | None]]]:
    """Return commands that only one of the parsers has found; each has its own order."""
    left = list(commands)
    ours: list[list[str]] = []
    # Certain matches are paired first.
    known = sorted(script.commands, key=lambda each: sum(w.expansion != "none" for w in each.words))
    for command in known:
        candidates = [each for each in left if _is_same(command.words, each)]
        # Of several, the one with the most words in common.
        texts = [word.text for word in command.words]
        match = max(candidates, key=lambda each: sum(map(eq, each, texts)), default=None)
        if match is not None:
            left.remove(match)
        elif command.words:
            ours.append([word.text for word in command.words])
    return ours, [words for words in left if words]


def _is_same(ours: Sequence[Word], theirs: list[str | None]) -> bool:
    return len(ours) == len(theirs) and all(map(_is_same_word, ours, theirs))


def _is_same_word(ours: Word, theirs: str | None) -> bool:
    match ours.expansion:
        case "none":
            return ours.text == theirs
        case "paths":
            return theirs in {ours.text, None}
        case "text":
            return True
