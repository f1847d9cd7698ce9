"""JSON from other programs as bytes: repairs invalid text, measures its nesting."""

from __future__ import annotations

import re
from itertools import accumulate
from operator import add
from typing import Any, Final

import msgspec

MAX_NESTING: Final = 128
"""The maximum nesting of JSON from outside: the limit of the reference's own parser."""

MAX_CONTAINERS: Final = 100_000
MAX_STRINGS: Final = 500_000
"""The maximum number of arrays and objects, and of strings, in one message: each is an object in
memory, and all of them are created in one step."""
MAX_VALUES: Final = 500_000
"""The maximum number of values in one message: numbers and null take little memory, but time."""
MAX_REPAIRED: Final = 1024 * 1024
"""The maximum size of a document that is repaired, which takes longer than all other steps."""

_encode: Final = msgspec.json.Encoder().encode
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# Each half without the other. Both begin alike, so that the search for them is fast.
_HALVES: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!%b)|[c-fC-F][0-9a-fA-F]{2}(?<!%b%b))"
    % (_LOW, _HIGH, _LOW)
)
# Replaces an escaped backslash; valid JSON has this byte only in escaped form.
_BACKSLASH: Final = b"\x00"
_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NO_MARKS: Final = bytes(byte for byte in range(256) if byte not in b'{}[]"')
_TO_BITS: Final = bytes.maketrans(b"[]", b"10")
_STEP: Final = 64 * 1024
# For the bits of eight brackets: the change of depth from start to end, and the maximum depth.
_WAYS: Final = [
    [*accumulate(1 if byte >> bit & 1 else -1 for bit in reversed(range(8)))] for byte in range(256)
]
_RISE: Final = [way[-1] for way in _WAYS]
_PEAK: Final = [max(way) for way in _WAYS]
_NO_BEGINNINGS: Final = bytes(byte for byte in range(256) if byte not in b'{[,"')


def repair_json(document: bytes) -> bytes:
    """Replace lone surrogates and invalid UTF-8 with replacement characters.

    A document that is longer than `MAX_REPAIRED` is returned unchanged.
    """
    if len(document) > MAX_REPAIRED or _BACKSLASH in document:
        return document
    valid = document.decode("utf-8", "replace").encode()
    # An escaped backslash starts no escape sequence.
    halved = _HALVES.sub(rb"\\ufffd", valid.replace(rb"\\", _BACKSLASH))
    return halved.replace(_BACKSLASH, rb"\\")


def is_nested_deeper(document: bytes, limit: int = MAX_NESTING) -> bool:
    """Return whether arrays and objects are nested deeper than the limit; takes linear time.

    Parsers recurse: a document that one accepts may be too deep for the next, and a value that is
    too deep to be encoded again inside a response makes the whole response unreadable.
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
    """Return how far brackets rise above the level at which they begin.

    Eight are looked up at once. Removing pair after pair takes as many passes as there are levels,
    which makes a document of brackets alone a hundred times slower than it is to decode.
    """
    # The padding of the last group only lowers the depth.
    bits = brackets.translate(_TO_BITS).ljust(-(-len(brackets) // 8) * 8, b"0")
    groups = int(bits, 2).to_bytes(len(bits) // 8, "big")
    before = accumulate(map(_RISE.__getitem__, groups), initial=0)
    highest: int = max(map(add, before, map(_PEAK.__getitem__, groups)))
    return highest


def is_crowded(document: bytes) -> bool:
    """Return whether a message has too many parts to be decoded in one step."""
    if len(document) <= 2 * MAX_CONTAINERS:
        return False
    quotes = document.count(b'"')
    if quotes > 2 * MAX_STRINGS and quotes - document.count(b'\\"') > 2 * MAX_STRINGS:
        return True
    brackets = document.count(b"[") + document.count(b"{")
    if brackets <= MAX_CONTAINERS and brackets + document.count(b",") <= MAX_VALUES:
        return False
    marks = _outside_strings(document, _NO_BEGINNINGS)
    return len(marks) > MAX_VALUES or len(marks) - marks.count(b",") > MAX_CONTAINERS


def has_more_values(document: bytes, limit: int) -> bool:
    """Return whether a document has more than this many values; takes linear time.

    The cost to decode, store and encode a document depends on their number more than on its size.
    """
    if sum(map(document.count, (b"[", b"{", b","))) <= limit:
        return False
    return len(_outside_strings(document, _NO_BEGINNINGS)) > limit


def _brackets(document: bytes) -> bytes:
    """Return the brackets outside strings, all of them as square ones."""
    return _outside_strings(document, _NO_MARKS)


def _outside_strings(document: bytes, dropped: bytes) -> bytes:
    """Return the characters outside strings, except the dropped ones.

    Only methods of `bytes`: a regular expression takes 10 to 30 times as long, and these documents
    are read on the event loop.
    """
    if b"\\" in document:
        document = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two adjacent quotes begin or end nothing that contains a mark.
    marks = document.translate(_TO_SQUARE, dropped).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def encode_json(value: object) -> bytes:
    """Encode a value; lone surrogates become replacement characters.

    They represent bytes of file names that are not UTF-8, and models produce them.
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
    """Replace lone surrogates, which UTF-8 cannot encode, with replacement characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
