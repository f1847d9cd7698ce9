"""Evaluates the user's and the project's rules for a command or a host."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from treadle.engine.commands.dangers import is_dangerous, is_forced_removal
from treadle.engine.commands.every import every_command
from treadle.engine.commands.rule_file import (
    MAX_RULE_BYTES,
    Decision,
    NetworkRule,
    PrefixRule,
    RuleFile,
    normal_host,
    read_rules,
)
from treadle.engine.commands.rule_writing import append_network_rule, append_rule
from treadle.engine.commands.starters import without_options
from treadle.engine.commands.unclear import CommandTooComplex, Glob, Unclear, may_begin
from treadle.engine.commands.widths import is_too_wide
from treadle.shell.safe import SYSTEM_FOLDERS, is_known_safe
from treadle.shell.scripts import commands_of, program_name, script_of
from treadle.support.files.descriptors import is_shortage
from treadle.support.files.reading import read_whole

__all__ = [
    "Rules",
    "RulesCache",
    "Verdict",
    "amendment_for",
    "append_network_rule",
    "append_rule",
    "warm_caches",
]

_STRICTNESS: Final[dict[Decision, int]] = {
    "allow": 0,
    "prompt": 1,
    "prompt-user": 2,
    "forbidden": 3,
}
_MAX_CACHED: Final = 64
MAX_FILES: Final = 500
"""How many rules files a folder may have."""
_MAX_ENTRIES: Final = 5000
_UNCLEAR: Final = (
    "the program is known only when the shell runs the command, and a rule may restrict it"
)
_TOO_COMPLEX: Final = "it is too complex to search for commands that a rule restricts"


class Verdict(Struct, frozen=True):
    """The decision of a rule, with the matched words, the justification and the location."""

    decision: Decision
    pattern: tuple[str, ...]
    justification: str | None
    source: str


class Rules:
    """The combined rules of some folders; `warnings` lists what could not be read."""

    def __init__(self, files: Sequence[RuleFile] = ()) -> None:
        self.warnings: tuple[str, ...] = tuple(
            warning for file in files for warning in file.warnings
        )
        self._unread = next((file.unread for file in files if file.unread is not None), None)
        self._prefixes = [rule for file in files for rule in file.prefixes]
        # Indexed by the first word of a command, so that many rules cost no more than few.
        self._allowing_rules = _by_first_word(
            rule for rule in self._prefixes if rule.decision == "allow"
        )
        self._restricting_rules = _by_first_word(
            _for_every_path(rule) for rule in self._prefixes if rule.decision != "allow"
        )
        self._networks = [rule for file in files for rule in file.networks]
        # A command is checked when it is requested, and again when a rule is proposed for it.
        self._last: tuple[tuple[str, ...], Verdict | None] | None = None
        self._executables: dict[str, frozenset[str]] = {}
        for file in files:
            self._executables.update(file.executables)

    @classmethod
    def load(cls, folders: Sequence[Path], managed: RuleFile | None = None) -> Self:
        """Read the `.rules` files of some folders; a folder may be missing."""
        files = [file for folder in folders for file in _read_folder(folder)]
        return cls(files if managed is None else [managed, *files])

    def check(self, argv: Sequence[str]) -> Verdict | None:
        """The strictest verdict about a command, which is allowed only if each of its parts is.

        A restricting rule also matches in substitutions, after `sudo` or `env`, and in a script
        that is passed to a shell. The reference checks plain scripts only. A program that is not
        known, as in `$x push`, may be a restricted one, so it requires approval.
        """
        if self._unread is not None:
            verdict = self._check(argv) if self._prefixes else None
            if verdict is not None and verdict.decision == "forbidden":
                return verdict
            return Verdict("prompt", tuple(argv[:1]), self._unread, self._unread)
        if not self._prefixes:
            return None
        key = tuple(argv)
        last = self._last  # another thread may replace it
        if last is None or last[0] != key:
            last = self._last = key, self._check(key)
        return last[1]

    def _check(self, argv: Sequence[str]) -> Verdict | None:
        restriction = None
        if self._restricting_rules:
            restriction = max(self._restrictions(argv), key=_strictness, default=None)
        return restriction or self._permission(argv)

    def check_host(self, host: str, protocol: str | None = None) -> Verdict | None:
        """The strictest verdict about a host, for one protocol or for any."""
        try:
            name = normal_host(host)
        except ValueError:
            return None
        rules = [
            rule
            for rule in self._networks
            if rule.host == name and protocol in {None, rule.protocol}
        ]
        verdicts = [_host_verdict(rule) for rule in rules]
        if self._unread is not None:
            verdicts.append(Verdict("prompt", (name,), self._unread, self._unread))
        return max(verdicts, key=_strictness, default=None)

    def allows(self, command: Sequence[str]) -> bool:
        """Whether a rule allows this single command, which is not a script."""
        return self._allowing(command) is not None

    def _restrictions(self, argv: Sequence[str]) -> Iterator[Verdict]:
        try:
            for command in every_command(argv, self._restricting_rules.keys()):
                yield from self._restrictions_of(command)
        except CommandTooComplex:
            # `is_dangerous` might still accept it: the limits depend on the names to search for.
            yield self._doubt(program_name(argv[0]), _TOO_COMPLEX)

    def _restrictions_of(self, command: Sequence[str]) -> Iterator[Verdict]:
        first = command[0] if command else ""
        if isinstance(first, Unclear) and not isinstance(first, Glob):
            yield self._doubt(first, _UNCLEAR)
            return
        for words in chain.from_iterable(
            map(_restricted_spellings, [command, *without_options(command)])
        ):
            for rule in self._restricting_rules.get(words[0], ()) if words else ():
                if rule.matches(words):
                    yield _verdict(rule, words)
                elif may_begin(words, rule.pattern):
                    yield Verdict("prompt", tuple(words), _UNCLEAR, rule.source)

    def _doubt(self, program: str, reason: str) -> Verdict:
        """The verdict about an unknown program, which a rule may restrict."""
        rules = next(iter(self._restricting_rules.values()))
        return Verdict("prompt", (str(program),), reason, rules[0].source)

    def _permission(self, argv: Sequence[str]) -> Verdict | None:
        verdicts: list[Verdict] = []
        # The shell of a script runs too, and may be a file of a repository.
        is_script = script_of(argv) is not None
        if is_script and "/" in argv[0] and not self._is_trusted(argv[0]):
            return None
        for command in commands_of(argv):
            verdict = self._allowing(command)
            if verdict is not None:
                verdicts.append(verdict)
            # A rule lets the whole script leave the sandbox, where the programs of a repository
            # that a command created must not run.
            elif not is_known_safe(command, trusts_repository=False):
                return None
        return verdicts[0] if verdicts else None

    def _allowing(self, command: Sequence[str]) -> Verdict | None:
        for words in self._spellings(command):
            if words is not command and not self._is_trusted(command[0]):
                continue
            for rule in self._allowing_rules.get(words[0], ()) if words else ():
                if rule.matches(words):
                    return _verdict(rule, words)
        return None

    def _spellings(self, command: Sequence[str]) -> list[Sequence[str]]:
        """The command itself, and with the bare name of its program instead of a path."""
        if not command or "/" not in command[0]:
            return [command]
        return [command, [program_name(command[0]), *command[1:]]]

    def _is_trusted(self, program: str) -> bool:
        """Whether a path is the program that its bare name means."""
        # The reference accepts any path unless the name is listed, so ./git would be git. The list
        # narrows what is allowed, never what is restricted.
        folder, _, name = program.rpartition("/")
        listed = self._executables.get(name)
        return folder in SYSTEM_FOLDERS if listed is None else program in listed


class RulesCache:
    """Caches the rules of folders until one of their files changes."""

    def __init__(self) -> None:
        self._read: dict[tuple[Path, ...], tuple[object, Rules]] = {}

    def load(self, folders: Sequence[Path], managed: RuleFile | None = None) -> Rules:
        """The current rules of some folders, and those of the administrator."""
        key = tuple(folders)
        listed = [_paths(folder) for folder in folders]
        files = [([_stamp(path) for path in paths], is_whole) for paths, is_whole in listed]
        stamp = (files, managed)
        known = self._read.get(key)
        if known is not None and known[0] == stamp:
            return known[1]
        rules = Rules.load(folders, managed)
        if len(self._read) >= _MAX_CACHED:
            self._read.clear()
        self._read[key] = (stamp, rules)
        return rules


def warm_caches(argv: Sequence[str], rules: Rules) -> None:
    """Compute and cache what a judgement needs; call it in a worker thread."""
    if rules.check(argv) is None and is_dangerous(argv):
        is_forced_removal(argv)


def amendment_for(
    argv: Sequence[str],
    rules: Rules,
    *,
    prefix_rule: Sequence[str] | None = None,
    escalated: bool = False,
) -> list[str] | None:
    """The rule to propose, so that the command needs no approval next time; `None` for none.

    This is the model's `prefix_rule` if it covers the command and is not too wide, otherwise the
    first part of the command that is not allowed yet. `escalated`: the command requests to run
    outside the sandbox, where known-safe commands need approval too.
    """
    verdict = rules.check(argv)
    if (verdict is not None and verdict.decision != "allow") or is_dangerous(argv):
        return None
    open_parts = [
        command
        for command in commands_of(argv)
        if not rules.allows(command)
        and (escalated or not is_known_safe(command, trusts_repository=False))
    ]
    if not open_parts:
        return None
    prefix = list(prefix_rule or ())
    is_covered = all(command[: len(prefix)] == prefix for command in open_parts)
    if prefix and is_covered and not is_too_wide(prefix):
        return prefix
    return None if is_too_wide(open_parts[0]) else open_parts[0]


def _for_every_path(rule: PrefixRule) -> PrefixRule:
    first, *rest = rule.pattern
    names = [*filter(None, map(program_name, first))]
    small = [name.lower() for name in names]
    return replace(rule, pattern=(tuple(dict.fromkeys([*first, *names, *small])), *rest))


def _restricted_spellings(command: Sequence[str]) -> list[Sequence[str]]:
    """The command, and with the bare name of its program, which may be written in capitals."""
    if not command:
        return []
    name = program_name(command[0])
    firsts = dict.fromkeys([command[0], name, name.lower()])
    return [command if first == command[0] else [first, *command[1:]] for first in firsts]


def _by_first_word(rules: Iterable[PrefixRule]) -> dict[str, list[PrefixRule]]:
    by_word: dict[str, list[PrefixRule]] = {}
    for rule in rules:
        for word in dict.fromkeys(rule.pattern[0]):
            by_word.setdefault(word, []).append(rule)
    return by_word


def _read_folder(folder: Path) -> Iterator[RuleFile]:
    paths, is_whole = _paths(folder)
    yield from map(_read, paths)
    if not is_whole:
        text = f"{folder}: more than {MAX_FILES} files"
        yield RuleFile(warnings=[text], unread=f"the rules cannot be read: {text}")


def _paths(folder: Path) -> tuple[list[Path], bool]:
    """Return the rules files of a folder, and whether these are all."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _MAX_ENTRIES + 1)]
        found = sorted(folder / name for name in names if name.endswith(".rules"))
        return found[:MAX_FILES], len(names) <= _MAX_ENTRIES and len(found) <= MAX_FILES
    except OSError as error:
        if is_shortage(error):
            raise  # without its rules a forbidden command would be allowed
        return [], True


def _stamp(path: Path) -> tuple[str, int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return str(path), 0, 0, 0
    return str(path), status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> RuleFile:
    try:
        text = read_whole(path, MAX_RULE_BYTES).decode("utf-8", "replace")
    except OSError as error:
        if is_shortage(error):
            raise
        text = f"{path}: {error.strerror}"
        if isinstance(error, FileNotFoundError):
            return RuleFile()
        return RuleFile(warnings=[text], unread=f"the rules cannot be read: {text}")
    return read_rules(text, str(path))


def _verdict(rule: PrefixRule, words: Sequence[str]) -> Verdict:
    matched = tuple(words[: len(rule.pattern)])
    return Verdict(rule.decision, matched, rule.justification, rule.source)


def _host_verdict(rule: NetworkRule) -> Verdict:
    return Verdict(rule.decision, (rule.host,), rule.justification, rule.source)


def _strictness(verdict: Verdict) -> int:
    return _STRICTNESS[verdict.decision]
