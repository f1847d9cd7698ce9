"""Base64 in chunks, so that no single call blocks the interpreter and the event loop for long."""

from __future__ import annotations

import binascii
from typing import Final

_BYTES: Final = 768 * 1024
_CHARACTERS: Final = 1024 * 1024


def encode_base64(data: bytes) -> str:
    """Encode bytes."""
    return "".join(
        binascii.b2a_base64(data[start : start + _BYTES], newline=False).decode("ascii")
        for start in range(0, len(data), _BYTES)
    )


def decode_base64_strictly(text: str) -> bytes:
    """Decode text.

    Raises:
        ValueError: it contains other characters, or padding that is not at its end.
    """
    pieces: list[bytes] = []
    for start in range(0, len(text), _CHARACTERS):
        piece = text[start : start + _CHARACTERS]
        is_last = start + _CHARACTERS >= len(text)
        if not is_last and piece.endswith("="):
            raise binascii.Error("Excess data after padding")
        pieces.append(binascii.a2b_base64(piece, strict_mode=True))
    return b"".join(pieces)
