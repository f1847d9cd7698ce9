"""Which commands only read, as far as anyone can tell from their words.

What a server says of a command leaves out the parts that only shape its output, and those may
write files or start programs. So each part must be a program that is known here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

_READERS: Final = frozenset(
    "basename cat cksum cmp column comm cut df diff dirname du echo egrep eza exa fgrep fold grep "
    "head join ls md5sum nl od paste pwd readlink realpath rev seq sha1sum sha256sum stat tac tail "
    "tr true wc which".split()
)
"""Programs that no option makes do more."""

_REFUSED: Final = {
    "fd": ("xX", ("--exec", "--exec-batch")),
    "git grep": ("Oo", ("--open-files-in-pager", "--ext-grep", "--textconv", "--output")),
    "git ls-files": ("", ()),
    "rg": ("z", ("--pre", "--hostname-bin", "--search-zip")),
    "sort": ("oT", ("--output", "--compress-program", "--temporary-directory")),
    "tree": ("oR", ()),
}
"""Programs that some options make do more: the letters of those, and the long ones."""

_FOUND: Final = frozenset(
    "-delete -exec -execdir -ok -okdir -fprint -fprint0 -fprintf -fls".split()
)
_PRINT: Final = re.compile(r"\d+(,\d+)?p")
_SHELLS: Final = ("bash", "sh", "zsh")
_FOLDERS: Final = ("", "/bin", "/usr/bin", "/usr/local/bin")
# Redirections, substitutions, lists, jobs, and braces, which a shell makes words of.
_MARKS: Final = frozenset(">`$&;{\n\r")


def only_reads(command: str | None) -> bool:
    """Whether a command, or the script that it gives to a shell, only reads, lists or searches."""
    try:
        words = shlex.split(command or "")
        is_script = len(words) == 3 and words[1] in ("-c", "-lc") and _name(words[0]) in _SHELLS
        script = words[2] if is_script else command or ""
        parts = _parts(script)
    except ValueError:
        return False
    is_plain = not _MARKS & set(script) and "<(" not in script
    return is_plain and all(_is_reader(part) for part in parts)


def _parts(script: str) -> list[list[str]]:
    """The words of each part of a pipeline; after a mark of another kind none is known."""
    lexer = shlex.shlex(script, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    lexer.commenters = ""
    parts: list[list[str]] = [[]]
    for word in lexer:
        if set(word) == {"|"}:
            parts.append([] if word == "|" else [word])
        else:
            parts[-1].append(word)
    return parts


def _name(program: str) -> str:
    """The name of a program of the system; nothing for one from elsewhere."""
    folder, _, name = program.rpartition("/")
    return name if folder in _FOLDERS else ""


def _is_reader(words: Sequence[str]) -> bool:
    name = _name(words[0]) if words else ""
    rest = words[1:]
    if name == "git" and rest:
        name, rest = f"git {rest[0]}", rest[1:]
    options = [word for word in rest if word.startswith("-") and word != "-"]
    match name:
        case "find":
            return not _FOUND.intersection(rest)
        case "sed":
            return set(options) == {"-n"} and bool(_PRINT.fullmatch(_operands(rest)[0]))
        case "uniq":
            return len(_operands(rest)) <= 1  # the second one is written to
        case _ if name in _REFUSED:
            return not any(_is_refused(option, *_REFUSED[name]) for option in options)
        case _:
            return name in _READERS


def _operands(words: Sequence[str]) -> list[str]:
    return [word for word in words if not word.startswith("-") or word == "-"] or [""]


def _is_refused(option: str, letters: str, names: Sequence[str]) -> bool:
    """Whether an option is a refused one, alone, among other letters, or cut short."""
    if not option.startswith("--"):
        return any(letter in option for letter in letters)
    said = option.partition("=")[0]
    return said != "--" and any(name.startswith(said) for name in names)
