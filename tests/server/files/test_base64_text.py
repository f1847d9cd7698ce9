"""Base64 as the reference accepts it; each refusal was observed on its own server."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.server.files.base64_text import BadBase64, decode_base64


@given(st.binary(max_size=64))
def test_what_was_encoded_is_decoded(data: bytes) -> None:
    assert decode_base64(base64.b64encode(data).decode()) == data


@given(st.text("ABab01+/=!\n\u00e9", max_size=12))
def test_a_text_is_the_canonical_encoding_of_its_bytes_or_refused(text: str) -> None:
    try:
        data = decode_base64(text)
    except BadBase64:
        return
    assert base64.b64encode(data).decode() == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("!!", "Invalid symbol 33, offset 0."),
        ("a", "Invalid input length: 1"),
        ("aaaaa", "Invalid input length: 5"),
        ("ab", "Invalid padding"),
        ("aGVsbG8", "Invalid padding"),
        ("AA=", "Invalid padding"),
        ("aGVsbG8==", "Invalid symbol 61, offset 7."),
        ("aGVsbG9=", "Invalid last symbol 57, offset 6."),
        ("AB==", "Invalid last symbol 66, offset 1."),
        ("aGVs bG8=", "Invalid symbol 32, offset 4."),
        ("aGVsbG8=\n", "Invalid symbol 10, offset 8."),
        ("=", "Invalid symbol 61, offset 0."),
        ("====", "Invalid symbol 61, offset 0."),
        ("A=", "Invalid symbol 61, offset 1."),
        ("A===", "Invalid symbol 61, offset 1."),
        ("AA=A", "Invalid symbol 61, offset 2."),
        ("AA===", "Invalid symbol 61, offset 2."),
        ("AAA==", "Invalid symbol 61, offset 3."),
        ("YWJj=", "Invalid symbol 61, offset 4."),
        ("YQ==YQ==", "Invalid symbol 61, offset 2."),
        ("AAAA!A==", "Invalid symbol 33, offset 4."),
        ("a-b_", "Invalid symbol 45, offset 1."),
        ("a\u00e9==", "Invalid symbol 195, offset 1."),
    ],
)
def test_a_refusal_names_the_problem_and_its_position(text: str, reason: str) -> None:
    with pytest.raises(BadBase64) as refused:
        decode_base64(text)
    assert str(refused.value) == reason
