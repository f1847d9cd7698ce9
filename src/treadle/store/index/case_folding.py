"""Text without regard to case, in linear time and with every character in its place."""

from __future__ import annotations

from collections.abc import Iterator


def fold(text: str) -> str:
    """Give a text to compare without regard to case; it has the same length."""
    lower = text.lower()
    if len(lower) != len(text):
        # One letter becomes two: leave that one alone.
        lower = "".join(small if len(small := each.lower()) == 1 else each for each in text)
    return lower.replace("\u03c2", "\u03c3").replace("\u017f", "s").replace("\u00b5", "\u03bc")


def mentions(text: str, folded_term: str) -> bool:
    """Tell whether a text holds a term that was folded."""
    return folded_term in fold(text)


def places_of(term: str, text: str) -> Iterator[int]:
    """Give where a text holds a term, without overlap."""
    folded, sought = fold(text), fold(term)
    at = folded.find(sought)
    while at >= 0:
        yield at
        at = folded.find(sought, at + len(sought))
