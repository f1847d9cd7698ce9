"""Proposed plans: in plan mode the model marks its plan inside its message."""

from __future__ import annotations

from typing import Final

OPEN: Final = "<proposed_plan>"
CLOSE: Final = "</proposed_plan>"


class PlanSplitter:
    """Parts a message that arrives in pieces into what is plan and what is not.

    The marks may be cut anywhere; what might be the beginning of one is held back. The line
    break after a mark belongs to the mark.
    """

    def __init__(self) -> None:
        self.is_inside = False
        self._held = ""
        self._drops_break = False

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """Take the next piece; gives pairs of whether it is plan, and the text."""
        # With a place instead of a rest: a copy for each mark takes quadratic time.
        held, at = self._held + text, 0
        parts: list[tuple[bool, str]] = []
        while True:
            at = self._after_break(held, at)
            mark = CLOSE if self.is_inside else OPEN
            found = held.find(mark, at)
            if found < 0:
                break
            self._add(parts, held[at:found])
            self.is_inside = not self.is_inside
            at, self._drops_break = found + len(mark), True
        end = len(held) - _open_end(held[at:], mark)
        self._add(parts, held[at:end])
        self._held = held[end:]
        return parts

    def finish(self) -> list[tuple[bool, str]]:
        """There is no more: what was held back is no mark after all."""
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
    """A whole message without its plan, and the plan if it has one."""
    splitter = PlanSplitter()
    parts = [*splitter.feed(text), *splitter.finish()]
    said = "".join(part for is_plan, part in parts if not is_plan)
    plan = "".join(part for is_plan, part in parts if is_plan)
    return said, plan if OPEN in text else None


def _open_end(text: str, mark: str) -> int:
    """How many characters at the end could be the beginning of a mark."""
    longest = min(len(text), len(mark) - 1)
    return next((size for size in range(longest, 0, -1) if mark.startswith(text[-size:])), 0)
