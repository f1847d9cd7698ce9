r"""Makes text from models, commands, servers and files safe to print to a terminal.

A terminal obeys control characters: an escape sequence can erase an earlier line, and a
bidirectional override can reorder it. Every character that a terminal does not show as itself is
therefore printed as an escape, such as `\x1b` or `\u202e`.
"""

from __future__ import annotations

from typing import Final

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Letters and marks that a terminal shows as nothing, or as a blank. `str.isprintable` accepts them.
_INVISIBLE: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
# Prose also keeps common spaces and the variation selector of coloured emoji.
_PROSE: Final = frozenset("\n\t\u00a0\u202f\ufe0f")
_NOTHING: Final[frozenset[str]] = frozenset()
_WIDE: Final = frozenset("WFA")
LINE: Final = "  | "
CONTINUED: Final = "  : "
"""The prefixes of a line, and of the rest of a line that is wider than the terminal."""


def one_line(text: str) -> str:
    """Escape everything but visible characters and the space, line breaks included."""
    return _escaped(text, _NOTHING)


def prose(text: str) -> str:
    """Escape what a terminal would obey or hide; keep line breaks, tabs and common spaces."""
    return _escaped(text.replace("\r\n", "\n"), _PROSE)


def has_escapes(text: str) -> bool:
    """Return whether a character other than a line break is shown as an escape."""
    return any(not _is_visible(char) for char in text if char != "\n")


def shortened(text: str, limit: int) -> str:
    """Return both ends of a long text, and the number of characters omitted between them."""
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 3, limit // 3
    left_out = len(text) - head - tail
    return f"{text[:head]} [... {left_out} characters left out ...] {text[-tail:]}"


def block(text: str, width: int) -> list[str]:
    """Return the rows of a terminal that show a text, each with a prefix.

    Long lines are broken here: a terminal would continue them in its first column, where a text
    could look like lines of the program itself.
    """
    room = max(width - len(LINE) - 1, 8)
    rows: list[str] = []
    for line in text.split("\n"):
        prefix = LINE
        for part in _broken(one_line(line), room):
            rows.append(f"{prefix}{part}")
            prefix = CONTINUED
    return rows


def _escaped(text: str, unescaped: frozenset[str]) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in unescaped or _is_visible(char) else _escape(char) for char in text
    )


def _is_visible(char: str) -> bool:
    # Not printable: control and format characters, surrogates, private and unassigned characters,
    # separators of lines and paragraphs, and spaces other than the common one.
    return char.isprintable() and char not in _INVISIBLE


def _escape(char: str) -> str:
    if (short := _SHORT.get(char)) is not None:
        return short
    code = ord(char)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"


def _broken(line: str, room: int) -> list[str]:
    if line.isascii():
        return [line[at : at + room] for at in range(0, len(line), room)] or [""]
    from unicodedata import east_asian_width

    parts: list[str] = []
    start = used = 0
    for at, char in enumerate(line):
        columns = 2 if east_asian_width(char) in _WIDE else 1
        if used + columns > room:
            parts.append(line[start:at])
            start, used = at, 0
        used += columns
    return [*parts, line[start:]]
