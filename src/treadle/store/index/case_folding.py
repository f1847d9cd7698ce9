"""Case-insensitive search, in linear time and with stable character offsets."""

from __future__ import annotations

from collections.abc import Iterator


def fold(text: str) -> str:
    """Return a text for case-insensitive comparison, with the same length."""
    lower = text.lower()
    if len(lower) != len(text):
        # Some letters become two in lower case: keep those.
        lower = "".join(small if len(small := each.lower()) == 1 else each for each in text)
    return lower.replace("\u03c2", "\u03c3").replace("\u017f", "s").replace("\u00b5", "\u03bc")


def mentions(text: str, folded_term: str) -> bool:
    """Return whether a text contains an already folded term."""
    return folded_term in fold(text)


def places_of(term: str, text: str) -> Iterator[int]:
    """Yield the offsets of a term in a text, without overlap."""
    folded, sought = fold(text), fold(term)
    at = folded.find(sought)
    while at >= 0:
        yield at
        at = folded.find(sought, at + len(sought))
