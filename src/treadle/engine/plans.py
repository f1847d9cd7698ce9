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
        self._held += text
        parts: list[tuple[bool, str]] = []
        while True:
            self._drop_break()
            mark = CLOSE if self.is_inside else OPEN
            before, found, after = self._held.partition(mark)
            if not found:
                break
            self._add(parts, before)
            self.is_inside = not self.is_inside
            self._held, self._drops_break = after, True
        kept = _open_end(self._held, mark)
        ready = self._held[: len(self._held) - kept]
        self._held = self._held[len(ready) :]
        self._add(parts, ready)
        return parts

    def finish(self) -> list[tuple[bool, str]]:
        """There is no more: what was held back is no mark after all."""
        parts: list[tuple[bool, str]] = []
        rest, self._held = self._held, ""
        self._add(parts, rest)
        return parts

    def _drop_break(self) -> None:
        if self._drops_break and self._held:
            self._held = self._held.removeprefix("\n")
            self._drops_break = False

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
