"""Plans that the model proposes: separates them from messages."""

from __future__ import annotations

from typing import Final

OPEN: Final = "<proposed_plan>"
CLOSE: Final = "</proposed_plan>"


class PlanSplitter:
    """Splits a streamed message into plan and other text.

    A tag may be split across deltas, so text that could be the start of a tag is held back. The
    line break after a tag belongs to the tag.
    """

    def __init__(self) -> None:
        self.is_inside = False
        self._held = ""
        self._drops_break = False

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """Take the next delta; return (is_plan, text) pairs."""
        # An index instead of slices: a copy per tag would take quadratic time.
        held, at = self._held + text, 0
        parts: list[tuple[bool, str]] = []
        while True:
            at = self._after_break(held, at)
            tag = CLOSE if self.is_inside else OPEN
            start = held.find(tag, at)
            if start < 0:
                break
            self._add(parts, held[at:start])
            self.is_inside = not self.is_inside
            at, self._drops_break = start + len(tag), True
        end = len(held) - _partial_tag_length(held[at:], tag)
        self._add(parts, held[at:end])
        self._held = held[end:]
        return parts

    def finish(self) -> list[tuple[bool, str]]:
        """Return the text that was held back: the message has ended without a further tag."""
        parts: list[tuple[bool, str]] = []
        rest, self._held = self._held, ""
        self._add(parts, rest)
        return parts

    def _after_break(self, held: str, at: int) -> int:
        if not self._drops_break or at == len(held):
            return at
        self._drops_break = False
        return at + held.startswith("\n", at)

    def _add(self, parts: list[tuple[bool, str]], text: str) -> None:
        if text:
            parts.append((self.is_inside, text))


def split(text: str) -> tuple[str, str | None]:
    """Return a complete message without its plan, and the plan if it has one."""
    splitter = PlanSplitter()
    parts = [*splitter.feed(text), *splitter.finish()]
    rest = "".join(part for is_plan, part in parts if not is_plan)
    plan = "".join(part for is_plan, part in parts if is_plan)
    return rest, plan if OPEN in text else None


def _partial_tag_length(text: str, tag: str) -> int:
    """Return how many characters at the end could be the start of a tag."""
    longest = min(len(text), len(tag) - 1)
    return next((size for size in range(longest, 0, -1) if tag.startswith(text[-size:])), 0)
