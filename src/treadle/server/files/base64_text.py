"""Base64 as the reference takes it: padded, and with no bit set that means nothing."""

from __future__ import annotations

import binascii
import re
from typing import Final

from treadle.support.text.base64_chunks import decode_base64_strictly

_OTHER: Final = re.compile(rb"[^A-Za-z0-9+/]")
_PAD: Final = ord("=")


class BadBase64(ValueError):
    """The text is no base64; the message says what is wrong and where."""


def decode_base64(text: str) -> bytes:
    """The bytes that a text stands for.

    Raises:
        BadBase64: none, or more than one text could stand for them.
    """
    try:
        data = decode_base64_strictly(text)
    except ValueError as error:
        raise _explained(text) from error
    last = data[(len(data) - 1) // 3 * 3 :]
    if not text.endswith(binascii.b2a_base64(last, newline=False).decode()):
        raise _explained(text)
    return data


def _explained(text: str) -> BadBase64:
    """What is wrong, in the words that clients know."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) % 4 == 1 and raw[-1] != _PAD and _OTHER.match(raw, len(raw) - 1):
        return _bad_symbol(raw, len(raw) - 1)  # the usual stray line break
    start = max(0, len(raw) - 1) // 4 * 4
    if found := _OTHER.search(raw, 0, start):
        return _bad_symbol(raw, found.start())
    return _explained_end(raw, start)


def _explained_end(raw: bytes, start: int) -> BadBase64:
    """What is wrong with the last group of four, or with the fewer that there are."""
    end = raw[start:]
    symbols = end.rstrip(b"=")
    if found := _OTHER.search(symbols):
        # Padding is out of place wherever something follows it.
        return _bad_symbol(raw, start + found.start())
    if len(symbols) < 2:
        is_cut = len(symbols) == len(end)
        return (
            BadBase64(f"Invalid input length: {len(raw)}")
            if is_cut
            else _bad_symbol(raw, start + len(symbols))
        )
    if len(end) < 4:
        return BadBase64("Invalid padding")
    at = start + len(symbols) - 1
    return BadBase64(f"Invalid last symbol {raw[at]}, offset {at}.")


def _bad_symbol(raw: bytes, offset: int) -> BadBase64:
    return BadBase64(f"Invalid symbol {raw[offset]}, offset {offset}.")
