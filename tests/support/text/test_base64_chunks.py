"""Base64 in chunks is the base64 of the whole."""

from __future__ import annotations

import base64

import pytest

from treadle.support.text import base64_chunks as encoding
from treadle.support.text.base64_chunks import decode_base64_strictly, encode_base64


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 6, 7, 11, 12, 13, 100])
def test_chunks_make_the_whole(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(encoding, "_BYTES", 6)
    monkeypatch.setattr(encoding, "_CHARACTERS", 8)
    data = bytes(range(size))
    text = base64.b64encode(data).decode()

    assert (encode_base64(data), decode_base64_strictly(text)) == (text, data)


@pytest.mark.parametrize(
    "text", ["A", "A===", "AA==AAAA", "AAAAAA==AAAA", "AAAA!AAA", "AAAA\nAAA", "ü"]
)
def test_invalid_base64_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(encoding, "_CHARACTERS", 8)

    with pytest.raises(ValueError, match=r"."):
        decode_base64_strictly(text)
