"""The arguments of `treadle exec`, spelled as those of `codex exec`.

Options may stand before and after the command words `resume`, `fork` and `review`, as upstream's
may; argparse's own subcommands know only one place for each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, TypeAlias

import treadle

NAMES: Final = ("exec", "e")
COMMANDS: Final = ("resume", "fork", "review")
_Flags: TypeAlias = tuple[str, ...]

_USAGE: Final = """\
treadle exec [OPTIONS] [PROMPT]
       treadle exec [OPTIONS] resume [THREAD | --last] [PROMPT]
       treadle exec [OPTIONS] fork THREAD [PROMPT]
       treadle exec [OPTIONS] review [--uncommitted | --base BRANCH | --commit SHA | PROMPT]"""
_ABOUT: Final = """\
Do one piece of work, unattended. PROMPT says what; without one, or with -, it is read from stdin.
What is piped in besides a PROMPT is added to it. Progress goes to stderr, the agent's last message
to stdout. Exit code: 0 done, 1 failed or interrupted, 2 the command line cannot be read."""

_VALUES: Final[tuple[tuple[_Flags, str, str], ...]] = (
    (("-m", "--model"), "MODEL", "the model, if not the configured one"),
    (("-p", "--profile"), "NAME", "a set of settings: NAME.config.toml beside config.toml"),
    (("-C", "--cd"), "DIR", "the folder to work in"),
    (("-o", "--output-last-message"), "FILE", "also write the last message into a file"),
    (("--output-schema",), "FILE", "JSON Schema that the last message is to fit"),
    (("--thread-source",), "WORD", "classifies a new thread"),
)
_CHOICES: Final[tuple[tuple[_Flags, tuple[str, ...], str], ...]] = (
    (("-s", "--sandbox"), ("read-only", "workspace-write", "danger-full-access"), "of commands"),
    (("--color",), ("always", "never", "auto"), "of the progress; auto: on a terminal only"),
    (("--local-provider",), ("lmstudio", "ollama"), "the model server on this machine"),
    (
        ("--cyber-access-program",),
        ("standard", "daybreak_blue", "daybreak_red"),
        "for OpenAI's own models",
    ),
)
_SWITCHES: Final[tuple[tuple[_Flags, str], ...]] = (
    (("--json", "--experimental-json"), "print every event to stdout, a line of JSON each"),
    (("--skip-git-repo-check",), "work in a folder that is in no Git repository, too"),
    (("--ephemeral",), "keep no record of the thread"),
    (("--full-auto",), "the same as --sandbox workspace-write"),
    (("--approve-for-me",), "let a reviewing model decide what the sandbox forbids"),
    (
        ("--dangerously-bypass-approvals-and-sandbox", "--yolo"),
        "run commands without any sandbox; only where something else confines them",
    ),
    (("--oss",), "use a model server on this machine"),
    (("--strict-config",), "refuse unknown settings"),
    (("--dangerously-bypass-hook-trust",), argparse.SUPPRESS),
)
_REPEATED: Final[tuple[tuple[_Flags, str, str], ...]] = (
    (("-c", "--config"), "KEY=VALUE", "override a value of config.toml"),
    (("--enable",), "FEATURE", "switch a feature on"),
    (("--disable",), "FEATURE", "switch a feature off"),
    (("--add-dir",), "DIR", "another folder that commands may write to"),
)
_OF_COMMAND: Final[dict[str, tuple[tuple[str, str | None, str], ...]]] = {
    "resume": (
        ("--last", None, "the thread that was used last in this folder"),
        ("--all", None, "... or in any folder"),
    ),
    "fork": (),
    "review": (
        ("--uncommitted", None, "review what is not committed yet"),
        ("--base", "BRANCH", "review what changed since a branch"),
        ("--commit", "SHA", "review one commit"),
        ("--title", "TEXT", "the title of that commit"),
    ),
}
_MOST_WORDS: Final = {None: 1, "resume": 2, "fork": 2, "review": 1}
_WITH_VALUE: Final = frozenset(
    flag
    for flags in (*(row[0] for row in (*_VALUES, *_CHOICES, *_REPEATED)), ("-i", "--image"))
    for flag in flags
)


def exec_arguments(arguments: Sequence[str]) -> list[str] | None:
    """What is said to `exec`, before and after the word itself; `None` for another command."""
    place = _first_word(arguments)
    if place is None or arguments[place] not in NAMES:
        return None
    return [*arguments[:place], *arguments[place + 1 :]]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; one that cannot be read ends the program with exit code 2."""
    rest: list[str] = []
    options = list(arguments)
    if "--" in options:
        place = options.index("--")
        options, rest = options[:place], options[place + 1 :]
    command = _cut_command(options)
    parser = _parser(command)
    if any(not _is_text(each) for each in arguments):
        parser.error("an argument is not valid UTF-8")
    given = parser.parse_intermixed_args(options)
    given.command = command
    given.words += rest
    _check_words(parser, given)
    return given


def _first_word(arguments: Sequence[str]) -> int | None:
    """Where the first argument stands that is neither an option nor the value of one."""
    is_value = False
    for place, word in enumerate(arguments):
        if is_value:
            is_value = False
        elif word == "--":
            return None
        elif word in _WITH_VALUE:
            is_value = True
        elif not word.startswith("-") or word == "-":
            return place
    return None


def _cut_command(options: list[str]) -> str | None:
    place = _first_word(options)
    if place is None or options[place] not in (*COMMANDS, "help"):
        return None
    command = options.pop(place)
    if command == "help":
        options.append("--help")
        return None
    return command


def _is_text(word: str) -> bool:
    """Whether an argument is text; bytes that are none come as halves of surrogate pairs."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parser(command: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="treadle exec",
        usage=_USAGE,
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    version = f"treadle-exec {treadle.__version__}"
    parser.add_argument("-V", "--version", action="version", version=version)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    for flags, metavar, what in _VALUES:
        parser.add_argument(*flags, metavar=metavar, help=what)
    for flags, choices, what in _CHOICES:
        parser.add_argument(*flags, choices=choices, help=what)
    for flags, what in _SWITCHES:
        parser.add_argument(*flags, action="store_true", help=what)
    for flags, metavar, what in _REPEATED:
        parser.add_argument(*flags, action="append", default=[], metavar=metavar, help=what)
    # Upstream takes several pictures at once, but for a thread that it goes on with.
    parser.add_argument(
        "-i",
        "--image",
        nargs="+" if command is None else 1,
        action="extend",
        default=[],
        metavar="FILE",
        help="show the model a picture",
    )
    for name, extra in _OF_COMMAND.items():
        group = parser.add_argument_group(name)
        for flag, metavar_, what in extra if command in (None, name) else ():
            _add(group, flag, metavar_, what)
    return parser


def _add(group: argparse._ArgumentGroup, flag: str, metavar: str | None, what: str) -> None:
    if metavar is None:
        group.add_argument(flag, action="store_true", help=what)
    else:
        group.add_argument(flag, metavar=metavar, help=what)


def _check_words(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Give each word its meaning."""
    command, words = given.command, list(given.words)
    most = _MOST_WORDS[command]
    if command == "resume" and given.last:
        most = 1
    if len(words) > most:
        parser.error(f"unrecognized arguments: {' '.join(words[most:])}")
    given.thread = None
    if command in ("fork", "resume") and not words and not getattr(given, "last", False):
        parser.error(f"{command} needs a thread" + (" or --last" if command == "resume" else ""))
    if command == "fork" or (command == "resume" and not given.last):
        given.thread = words.pop(0)
    given.prompt = words[0] if words else None
    if command is None and any(
        getattr(given, flag.lstrip("-")) for rows in _OF_COMMAND.values() for flag, _, _ in rows
    ):
        parser.error("an option of resume or review without the word itself")
    if command == "review":
        _check_review(parser, given)


def _check_review(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    targets = (given.uncommitted or None, given.base, given.commit, given.prompt)
    if sum(each is not None for each in targets) > 1:
        parser.error("--uncommitted, --base, --commit and a PROMPT exclude each other")
    if given.title is not None and given.commit is None:
        parser.error("--title needs --commit")
