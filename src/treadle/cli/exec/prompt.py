"""The prompt of `treadle exec`: the argument, piped input, or both."""

from __future__ import annotations

import codecs
import sys
from typing import Final


class ExecError(Exception):
    """The work cannot start; the message has the reason."""


_ENCODINGS: Final = (
    (codecs.BOM_UTF8, "UTF-8"),
    # Before UTF-16LE, whose byte order mark is a prefix of this one.
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)


def read_prompt(argument: str | None, *, takes_more: bool) -> str:
    """Return the prompt; with `takes_more`, piped input is appended to the argument.

    Raises:
        ExecError: there is no prompt, or it is not text.
    """
    if argument is not None and argument != "-":
        return _with_input(argument) if takes_more else argument
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if argument is None and is_terminal:
        message = "No prompt provided. Give one as an argument or pipe it into stdin."
        raise ExecError(message)
    if argument is None:
        print("Reading prompt from stdin...", file=sys.stderr)
    text = _read()
    if not text.strip():
        message = "No prompt provided via stdin."
        raise ExecError(message)
    return text


def _with_input(prompt: str) -> str:
    """Append piped input in upstream's form, which prompts and models know."""
    if sys.stdin is None or sys.stdin.isatty():
        return prompt
    print("Reading additional input from stdin...", file=sys.stderr)
    text = _read()
    if not text.strip():
        return prompt
    end = "" if text.endswith("\n") else "\n"
    return f"{prompt}\n\n<stdin>\n{text}{end}</stdin>"


def _read() -> str:
    try:
        data = b"" if sys.stdin is None else sys.stdin.buffer.read()
    except OSError as error:
        message = f"Failed to read prompt from stdin: {error.strerror or error}"
        raise ExecError(message) from error
    mark, encoding = next(
        ((mark, name) for mark, name in _ENCODINGS if data.startswith(mark)), (b"", "UTF-8")
    )
    try:
        return data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        message = (
            f"Failed to read prompt from stdin: input is not valid {encoding} "
            f"(invalid byte at offset {error.start + len(mark)}). Convert it to UTF-8 and retry."
        )
        raise ExecError(message) from error
