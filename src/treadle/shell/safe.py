"""Commands that are known only to read, and may run without approval.

The list began as the one of release 0.118, found by trying; 0.163 has none. It differs where noted:
a program is safe with the options and operands that its table lists, and with no others. What is
safe has to be so in bash, zsh, ksh and dash, with the programs of GNU, BusyBox, BSD and macOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.shell.checks import CHECKS
from treadle.shell.git import accepts_git
from treadle.shell.programs import find_program
from treadle.shell.scripts import script_of
from treadle.shell.syntax import MAX_SCRIPT, Redirection, Simple, parse
from treadle.shell.words import Word

SYSTEM_FOLDERS: Final = frozenset(
    "/bin /sbin /usr/bin /usr/sbin /usr/local/bin /opt/homebrew/bin".split()
)

_MAX_DEPTH: Final = 8


def is_known_safe(
    argv: Sequence[str], *, trusts_repository: bool = True, max_shells: int = _MAX_DEPTH
) -> bool:
    """Does the command, with everything that it would start, only look?

    The settings of a git repository may name programs. Without `trusts_repository` no use of git
    is safe. `max_shells` is how many shells may be started, each by the one before it: a shell
    may read start-up files, which are not judged.
    """
    if len(argv) > _MAX_WORDS or sum(map(len, argv)) > MAX_SCRIPT:
        return False
    judge = _Judge(max_shells)
    if not judge.accepts([Word(text) for text in argv], 0):
        return False
    # Elsewhere is another repository with other settings. The reference does not look at this.
    return "git" not in judge.programs or (trusts_repository and "cd" not in judge.programs)


def programs_of(argv: Sequence[str]) -> frozenset[str]:
    """Return the names of all programs that a command runs which is known to be safe."""
    judge = _Judge(_MAX_DEPTH)
    judge.accepts([Word(text) for text in argv], 0)
    return frozenset(judge.programs)


class _Judge:
    """Judges one command; `programs` are those that it was found to run."""

    def __init__(self, max_shells: int) -> None:
        self._max_shells = min(max_shells, _MAX_DEPTH)
        self.programs: set[str] = set()

    def accepts(self, words: Sequence[Word], depth: int) -> bool:
        if not words or depth > self._max_shells:
            return False
        name = _program(words[0])
        if name is None:
            return False
        self.programs.add(name)
        script = None
        if all(word.expansion == "none" for word in words):
            script = script_of([word.text for word in words])
        if script is not None:
            return self._accepts_script(script, depth + 1)
        return _accepts_program(name, words[1:])

    def _accepts_script(self, script: str, depth: int) -> bool:
        parsed = parse(script)
        if parsed is None or parsed.has_control or not parsed.commands:
            return False
        return all(self._accepts_simple(command, depth) for command in parsed.commands)

    def _accepts_simple(self, command: Simple, depth: int) -> bool:
        # An assignment may change what a later command is: PATH, LD_PRELOAD, GIT_EXTERNAL_DIFF.
        if command.has_assignments or not all(map(_is_harmless, command.redirections)):
            return False
        if not command.words:
            # zsh starts a pager for a redirection alone.
            return command.ends_group
        return self.accepts(command.words, depth)


def _accepts_program(name: str, words: Sequence[Word]) -> bool:
    if name in _TAKE_ANYTHING:
        return True
    if name == "git":
        return accepts_git(words)
    check = CHECKS.get(name)
    if check is None:
        allowed = find_program(name)
        return allowed is not None and allowed.accepts(words)
    return all(map(_is_certain, words)) and check([word.text for word in words])


def _is_certain(word: Word) -> bool:
    """Does the word stay what it is? A bracket that closes a test does, though it is a pattern."""
    return word.expansion == "none" or (word.text == "]" and word.is_bare)


def _is_harmless(redirection: Redirection) -> bool:
    target, operator = redirection.target, redirection.operator
    if operator in {"<<", "<<-", "<<<"}:
        return True
    if target.expansion != "none":
        return False
    if operator == "<":
        # Shells open a connection for some names of devices.
        return target.text == "/dev/null" or not target.text.startswith("/dev/")
    if operator in {"<&", ">&"}:
        return target.text in _STREAMS
    return operator != "<>" and target.text == "/dev/null"


def _program(word: Word) -> str | None:
    """The name of a program, if it is found on PATH or lies in a folder of the system."""
    if word.text == "[" and word.is_bare:
        return word.text
    if word.expansion != "none":
        return None
    # The reference looks at the last part of any path, so that ./ls is safe for it.
    folder, slash, name = word.text.rpartition("/")
    return name if not slash or folder in SYSTEM_FOLDERS else None


_MAX_WORDS: Final = 1000
_STREAMS: Final = frozenset("0 1 2 3 4 5 6 7 8 9 -".split())
# Whatever these are given, they print it, change the shell's own folder, or do nothing.
_TAKE_ANYTHING: Final = frozenset(": cd echo false true".split())
