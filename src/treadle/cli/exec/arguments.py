"""The arguments of `treadle exec`, spelled as those of `codex exec`.

Options may come before and after the commands `resume`, `fork` and `review`, as with upstream;
argparse's own subcommands accept each option in one place only.
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
_DESCRIPTION: Final = """\
Run one task without supervision. Without PROMPT, or with -, the prompt is read from stdin; input
piped in addition to a PROMPT is appended to it. Progress goes to stderr, the agent's last message
to stdout. Exit codes: 0 done, 1 failed or interrupted, 2 invalid command line."""

_VALUES: Final[tuple[tuple[_Flags, str, str], ...]] = (
    (("-m", "--model"), "MODEL", "model to use (default: the configured one)"),
    (("-p", "--profile"), "NAME", "settings profile: NAME.config.toml beside config.toml"),
    (("-C", "--cd"), "DIR", "the folder to work in"),
    (("-o", "--output-last-message"), "FILE", "also write the last message to a file"),
    (("--output-schema",), "FILE", "JSON Schema of the last message"),
    (("--thread-source",), "WORD", "classifies a new thread"),
)
_CHOICES: Final[tuple[tuple[_Flags, tuple[str, ...], str], ...]] = (
    (
        ("-s", "--sandbox"),
        ("read-only", "workspace-write", "danger-full-access"),
        "sandbox mode of commands",
    ),
    (("--color",), ("always", "never", "auto"), "color of the progress; auto: on a terminal only"),
    (("--local-provider",), ("lmstudio", "ollama"), "the model server on this machine"),
    (
        ("--cyber-access-program",),
        ("standard", "daybreak_blue", "daybreak_red"),
        "for OpenAI's own models",
    ),
)
_SWITCHES: Final[tuple[tuple[_Flags, str], ...]] = (
    (("--json", "--experimental-json"), "print every event to stdout as a line of JSON"),
    (("--skip-git-repo-check",), "allow a folder outside of a Git repository"),
    (("--ephemeral",), "do not store the thread"),
    (("--full-auto",), "the same as --sandbox workspace-write"),
    (("--approve-for-me",), "let a reviewing model decide about actions outside the sandbox"),
    (
        ("--dangerously-bypass-approvals-and-sandbox", "--yolo"),
        "run commands without a sandbox; only for machines that are otherwise confined",
    ),
    (("--oss",), "use a model server on this machine"),
    (("--strict-config",), "refuse unknown settings"),
    (
        ("--dangerously-bypass-hook-trust",),
        "run hooks that were not reviewed; only where their sources are",
    ),
)
_REPEATED: Final[tuple[tuple[_Flags, str, str], ...]] = (
    (("-c", "--config"), "KEY=VALUE", "override a value of config.toml"),
    (("--enable",), "FEATURE", "enable a feature"),
    (("--disable",), "FEATURE", "disable a feature"),
    (("--add-dir",), "DIR", "additional folder that commands may write to"),
)
_OF_COMMAND: Final[dict[str, tuple[tuple[str, str | None, str], ...]]] = {
    "resume": (
        ("--last", None, "the latest thread of this folder"),
        ("--all", None, "with --last: the latest thread of any folder"),
    ),
    "fork": (),
    "review": (
        ("--uncommitted", None, "review uncommitted changes"),
        ("--base", "BRANCH", "review changes relative to a branch"),
        ("--commit", "SHA", "review one commit"),
        ("--title", "TEXT", "the title of that commit"),
    ),
}
_MAX_POSITIONALS: Final = {None: 1, "resume": 2, "fork": 2, "review": 1}
_WITH_VALUE: Final = frozenset(
    flag
    for flags in (*(row[0] for row in (*_VALUES, *_CHOICES, *_REPEATED)), ("-i", "--image"))
    for flag in flags
)


def exec_arguments(arguments: Sequence[str]) -> list[str] | None:
    """Return the arguments of `exec`, before and after its name; `None` for another command."""
    index = _first_word(arguments)
    if index is None or arguments[index] not in NAMES:
        return None
    return [*arguments[:index], *arguments[index + 1 :]]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exit with code 2 if it is invalid."""
    rest: list[str] = []
    options = list(arguments)
    if "--" in options:
        index = options.index("--")
        options, rest = options[:index], options[index + 1 :]
    command = _cut_command(options)
    parser = _parser(command)
    if any(not _is_text(each) for each in arguments):
        parser.error("an argument is not valid UTF-8")
    args = parser.parse_intermixed_args(options)
    args.command = command
    args.words += rest
    _check_words(parser, args)
    return args


def _first_word(arguments: Sequence[str]) -> int | None:
    """Return the index of the first argument that is neither an option nor an option's value."""
    is_value = False
    for index, word in enumerate(arguments):
        if is_value:
            is_value = False
        elif word == "--":
            return None
        elif word in _WITH_VALUE:
            is_value = True
        elif not word.startswith("-") or word == "-":
            return index
    return None


def _cut_command(options: list[str]) -> str | None:
    index = _first_word(options)
    if index is None or options[index] not in (*COMMANDS, "help"):
        return None
    command = options.pop(index)
    if command == "help":
        options.append("--help")
        return None
    return command


def _is_text(word: str) -> bool:
    """Return whether an argument is text; other bytes appear as lone surrogates."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parser(command: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="treadle exec",
        usage=_USAGE,
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    version = f"treadle-exec {treadle.__version__}"
    parser.add_argument("-V", "--version", action="version", version=version)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    for flags, metavar, help_text in _VALUES:
        parser.add_argument(*flags, metavar=metavar, help=help_text)
    for flags, choices, help_text in _CHOICES:
        parser.add_argument(*flags, choices=choices, help=help_text)
    for flags, help_text in _SWITCHES:
        parser.add_argument(*flags, action="store_true", help=help_text)
    for flags, metavar, help_text in _REPEATED:
        parser.add_argument(*flags, action="append", default=[], metavar=metavar, help=help_text)
    # Upstream takes several images per option, except with a command such as `resume`.
    parser.add_argument(
        "-i",
        "--image",
        nargs="+" if command is None else 1,
        action="extend",
        default=[],
        metavar="FILE",
        help="attach an image to the prompt",
    )
    for name, extra in _OF_COMMAND.items():
        group = parser.add_argument_group(name)
        for flag, metavar_, help_text in extra if command in (None, name) else ():
            _add(group, flag, metavar_, help_text)
    return parser


def _add(group: argparse._ArgumentGroup, flag: str, metavar: str | None, help_text: str) -> None:
    if metavar is None:
        group.add_argument(flag, action="store_true", help=help_text)
    else:
        group.add_argument(flag, metavar=metavar, help=help_text)


def _check_words(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Assign the positional arguments to thread and prompt."""
    command, words = args.command, list(args.words)
    maximum = _MAX_POSITIONALS[command]
    if command == "resume" and args.last:
        maximum = 1
    if len(words) > maximum:
        parser.error(f"unrecognized arguments: {' '.join(words[maximum:])}")
    args.thread = None
    if command in ("fork", "resume") and not words and not getattr(args, "last", False):
        parser.error(f"{command} needs a thread" + (" or --last" if command == "resume" else ""))
    if command == "fork" or (command == "resume" and not args.last):
        args.thread = words.pop(0)
    args.prompt = words[0] if words else None
    if command is None and any(
        getattr(args, flag.lstrip("-")) for rows in _OF_COMMAND.values() for flag, _, _ in rows
    ):
        parser.error("an option of resume or review needs that command")
    if command == "review":
        _check_review(parser, args)


def _check_review(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    targets = (args.uncommitted or None, args.base, args.commit, args.prompt)
    if sum(each is not None for each in targets) > 1:
        parser.error("--uncommitted, --base, --commit and PROMPT are mutually exclusive")
    if args.title is not None and args.commit is None:
        parser.error("--title needs --commit")
