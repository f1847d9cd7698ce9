"""Finds all commands that a command may start: in its scripts and in its arguments.

What cannot be resolved is reported: a command whose first word is `Unclear` may be any command. A
pattern in the place of a program counts as each program that matches it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final

from treadle.engine.commands.guesses import guesses
from treadle.engine.commands.starters import (
    READERS_WITHOUT_PROGRAM,
    SHELLS,
    STARTERS,
    gives_names,
    name_of,
    reads_input,
    scripts_in,
    started_by,
)
from treadle.engine.commands.unclear import CommandTooComplex, Glob, Unclear, fitting, values_of
from treadle.shell.scripts import display, program_name
from treadle.shell.syntax import MAX_SCRIPT, ParsedScript, Simple, parse


def every_command(argv: Sequence[str], names: AbstractSet[str]) -> Iterator[list[str]]:
    """All commands that a command may start, including itself.

    `names` are the programs that the caller searches for.

    Raises:
        CommandTooComplex: it may start more than were found so far.
    """
    targets = names | _STARTING
    seen: set[str] = set()
    characters, words = _MAX_CHARACTERS, _MAX_WORDS
    pending = [list(argv)]
    while pending:
        command = pending.pop()
        if not command:
            continue
        started: list[list[str]] = []
        for each in _started(command, targets):
            started.append(each)
            yield each
        words -= sum(len(each) for each in started[1:])
        for script in (script for each in started for script in scripts_in(each)):
            # Parse each script once: a script that contains itself would never end.
            if script in seen:
                continue
            seen.add(script)
            characters -= len(script)
            if characters < 0 or len(script) > MAX_SCRIPT:
                raise CommandTooComplex
            # Count one by one: a short script can expand to very many words.
            for each in _of_script(script, targets):
                words -= len(each)
                if words < 0:
                    raise CommandTooComplex
                pending.append(each)
        if words < 0:
            raise CommandTooComplex


def _started(command: list[str], targets: AbstractSet[str]) -> Iterator[list[str]]:
    """The command, the commands in its arguments, and those that its patterns may match."""
    for each in chain([command], started_by(command, targets)):
        yield each
        if isinstance(each[0], Glob):
            names = fitting(each[0], targets)
            if len(names) > _MAX_FITTING:
                raise CommandTooComplex
            for name in names:
                yield from _started([name, *each[1:_MAX_BEHIND]], targets)
        if reads_input(each):
            yield [Unclear(f"{display(each)} < ...")]
        elif gives_names(each):
            yield [Unclear(display(each))]


def _of_script(script: str, targets: AbstractSet[str]) -> Iterator[list[str]]:
    parsed = parse(script)
    if parsed is None:
        yield from guesses(script, targets)
        return
    commands: list[tuple[Simple, list[str]]] = []
    room = _MAX_WORDS
    for each in parsed.commands:
        commands.append((each, values_of(each.words)))
        room -= len(commands[-1][1])
        if room < 0:
            raise CommandTooComplex
    for simple, words in commands:
        yield [*words, *_input_script(simple, words)]
    # A shell that reads stdin may run the input or output of any command in the script.
    if any(map(reads_input, (each for _, words in commands for each in _readers(words)))):
        yield from (["eval", text] for text in _texts(parsed))
        yield from (["eval", *words[1:]] for _, words in commands if name_of(words) in _PRINTERS)


def _readers(words: list[str]) -> Iterator[list[str]]:
    if words:
        yield words
        yield from started_by(words, _READERS)


def _input_script(simple: Simple, words: Sequence[str]) -> Iterator[str]:
    """The input of a shell, if it is in the script, as an equivalent `-c` option."""
    if not any(map(_is_shell, words)):
        return
    for each in simple.redirections:
        document = each.document
        if document is not None and (document.is_literal or not _is_expanded(document.text)):
            yield from ("-c", document.text)
        elif each.operator == "<<<" and each.target.expansion == "none":
            yield from ("-c", each.target.text)


def _is_shell(word: str) -> bool:
    return program_name(word).lower() in _READERS


def _is_expanded(text: str) -> bool:
    return "$" in text or "`" in text


def _texts(script: ParsedScript) -> Iterator[str]:
    for each in (each for command in script.commands for each in command.redirections):
        if each.document is not None:
            yield each.document.text
        elif each.operator == "<<<":
            yield each.target.text


# Limits for all scripts together.
_MAX_CHARACTERS: Final = 2 * MAX_SCRIPT
_MAX_WORDS: Final = 10_000
# How many programs a pattern may match, and how many words after it are searched.
_MAX_FITTING: Final = 20
_MAX_BEHIND: Final = 50
_READERS: Final = SHELLS | READERS_WITHOUT_PROGRAM | {"source", "."}
_PRINTERS: Final = frozenset({"echo", "printf", "print"})
_STARTING: Final = STARTERS | SHELLS | {"alias", "eval", "fc", "hash", "hist"}
