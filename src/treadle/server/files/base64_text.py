"""Base64 as the reference accepts it: padded, and without stray bits in the last symbol."""

from __future__ import annotations

import binascii
import re
from typing import Final

from treadle.support.text.base64_chunks import decode_base64_strictly

_OTHER: Final = re.compile(rb"[^A-Za-z0-9+/]")
_PAD: Final = ord("=")


class BadBase64(ValueError):
    """The text is not base64; the message names the fault and its offset."""


def decode_base64(text: str) -> bytes:
    """Return the bytes that a text encodes.

    Raises:
        BadBase64: the text is invalid or not in canonical form.
    """
    try:
        data = decode_base64_strictly(text)
    except ValueError as error:
        raise _explain(text) from error
    last = data[(len(data) - 1) // 3 * 3 :]
    if not text.endswith(binascii.b2a_base64(last, newline=False).decode()):
        raise _explain(text)
    return data


def _explain(text: str) -> BadBase64:
    """Return the error with the text that clients rely on."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) % 4 == 1 and raw[-1] != _PAD and _OTHER.match(raw, len(raw) - 1):
        return _bad_symbol(raw, len(raw) - 1)  # the usual stray line break
    start = max(0, len(raw) - 1) // 4 * 4
    if match := _OTHER.search(raw, 0, start):
        return _bad_symbol(raw, match.start())
    return _explain_end(raw, start)


def _explain_end(raw: bytes, start: int) -> BadBase64:
    """Return the error for the last, possibly incomplete, group of four."""
    end = raw[start:]
    symbols = end.rstrip(b"=")
    if match := _OTHER.search(symbols):
        # Padding is invalid wherever something follows it.
        return _bad_symbol(raw, start + match.start())
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
