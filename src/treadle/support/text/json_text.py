"""JSON as bytes that other programs wrote: repair what no text may hold, measure its nesting."""

from __future__ import annotations

import re
from itertools import accumulate
from operator import add
from typing import Any, Final

import msgspec

MAX_NESTING: Final = 128
"""How deep JSON from outside may be nested: the limit of the reference's own parser."""

MAX_CONTAINERS: Final = 100_000
MAX_STRINGS: Final = 500_000
"""How many arrays and objects, and how many strings, one message may have: each is an object in
memory, and all of them are made in one step."""
MAX_REPAIRED: Final = 1024 * 1024
"""How long a document may be that is repaired, which takes longer than all other steps."""

_encode: Final = msgspec.json.Encoder().encode
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# Each half without the other. Both begin alike, so that the search for them is fast.
_HALVES: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!%b)|[c-fC-F][0-9a-fA-F]{2}(?<!%b%b))"
    % (_LOW, _HIGH, _LOW)
)
# Stands for an escaped backslash; no JSON has this byte outside of an escape.
_BACKSLASH: Final = b"\x00"
_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NO_MARKS: Final = bytes(byte for byte in range(256) if byte not in b'{}[]"')
_TO_BITS: Final = bytes.maketrans(b"[]", b"10")
_STEP: Final = 64 * 1024
# By the bits of eight brackets: how much deeper they end than they begin, and their deepest place.
_WAYS: Final = [
    [*accumulate(1 if byte >> bit & 1 else -1 for bit in reversed(range(8)))] for byte in range(256)
]
_RISE: Final = [way[-1] for way in _WAYS]
_PEAK: Final = [max(way) for way in _WAYS]
_NO_BEGINNINGS: Final = bytes(byte for byte in range(256) if byte not in b'{[,"')


def repair_json(document: bytes) -> bytes:
    """Replace lone surrogates and invalid UTF-8 by replacement characters.

    A document that is longer than `MAX_REPAIRED` stays as it is.
    """
    if len(document) > MAX_REPAIRED or _BACKSLASH in document:
        return document
    valid = document.decode("utf-8", "replace").encode()
    # An escaped backslash begins nothing.
    halved = _HALVES.sub(rb"\\ufffd", valid.replace(rb"\\", _BACKSLASH))
    return halved.replace(_BACKSLASH, rb"\\")


def is_nested_deeper(document: bytes, limit: int = MAX_NESTING) -> bool:
    """Tell whether arrays and objects are nested deeper than the limit; takes linear time.

    Parsers recurse: a document that one accepts may be too deep for the next, and what is too
    deep to be encoded again inside an answer makes everything beside it unreadable.
    """
    if len(document) <= 2 * limit or document.count(b"[") + document.count(b"{") <= limit:
        return False
    brackets = _brackets(document)
    depth = 0
    for start in range(0, len(brackets), _STEP):
        part = brackets[start : start + _STEP]
        highest = _highest(part)
        if depth + highest > limit:
            return True
        depth += 2 * part.count(b"[") - len(part)
    return False


def _highest(brackets: bytes) -> int:
    """Return how far brackets rise above the level that they begin at.

    Eight are looked up at once. To remove pair after pair takes as many passes as there are levels,
    which a document of brackets alone makes a hundred times slower than it is to decode.
    """
    # What is added to fill the last group only falls.
    bits = brackets.translate(_TO_BITS).ljust(-(-len(brackets) // 8) * 8, b"0")
    groups = int(bits, 2).to_bytes(len(bits) // 8, "big")
    before = accumulate(map(_RISE.__getitem__, groups), initial=0)
    highest: int = max(map(add, before, map(_PEAK.__getitem__, groups)))
    return highest


def is_crowded(document: bytes) -> bool:
    """Tell whether a message has too many parts to be decoded in one step."""
    if len(document) <= 2 * MAX_CONTAINERS:
        return False
    quotes = document.count(b'"')
    if quotes > 2 * MAX_STRINGS and quotes - document.count(b'\\"') > 2 * MAX_STRINGS:
        return True
    if document.count(b"[") + document.count(b"{") <= MAX_CONTAINERS:
        return False
    return _brackets(document).count(b"[") > MAX_CONTAINERS


def has_more_values(document: bytes, limit: int) -> bool:
    """Tell whether a document has more than this many values; takes linear time.

    What a document costs to decode, keep and encode depends on their number more than on its size.
    """
    if sum(map(document.count, (b"[", b"{", b","))) <= limit:
        return False
    return len(_outside_strings(document, _NO_BEGINNINGS)) > limit


def _brackets(document: bytes) -> bytes:
    """Return the brackets that are outside of strings, all of them as square ones."""
    return _outside_strings(document, _NO_MARKS)


def _outside_strings(document: bytes, dropped: bytes) -> bytes:
    """Return what is outside of strings and not among the dropped characters.

    Only methods of `bytes`: a regular expression takes 10 to 30 times as long, and these documents
    are read on the event loop.
    """
    if b"\\" in document:
        document = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side begin or end nothing that holds a mark.
    marks = document.translate(_TO_SQUARE, dropped).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def encode_json(value: object) -> bytes:
    """Encode a value; halves of surrogate pairs become replacement characters.

    They stand for bytes of file names that are not UTF-8, and come from models.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_plain(msgspec.to_builtins(value)))


def _plain(value: Any) -> Any:  # noqa: ANN401  any JSON
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    return value


def replace_lone_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which no UTF-8 can hold, by replacement characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
