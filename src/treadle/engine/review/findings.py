"""Reads a reviewer's answer leniently, as JSON or text, and writes it as text."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from treadle.protocol.base import JsonValue

NO_ANSWER: Final = "The reviewer gave no answer."


class ReviewFinding(Struct, frozen=True):
    """One finding and its location."""

    title: str
    body: str = ""
    location: str | None = None


class ReviewOutput(Struct, frozen=True):
    """The complete output of a reviewer."""

    explanation: str
    findings: tuple[ReviewFinding, ...] = ()

    def text(self) -> str:
        """Return the review as text for people."""
        parts = [self.explanation.strip()] if self.explanation.strip() else []
        if self.findings:
            is_one = len(self.findings) == 1
            parts.append("Review comment:" if is_one else "Full review comments:")
            parts.extend(_entry(finding) for finding in self.findings)
        return "\n\n".join(parts) or NO_ANSWER


def read_review(text: str) -> ReviewOutput:
    """Read an answer: JSON, text that contains JSON, or plain text."""
    document = _document(text)
    if document is None:
        return ReviewOutput(text.strip())
    listed = document.get("findings")
    entries = listed if isinstance(listed, list) else []
    findings = [_finding(entry) for entry in entries if isinstance(entry, dict)]
    output = ReviewOutput(
        _text(document.get("overall_explanation")),
        tuple(finding for finding in findings if finding.title or finding.body),
    )
    # Any other JSON is shown as plain text.
    is_known = "findings" in document or "overall_explanation" in document
    return output if is_known else ReviewOutput(text.strip())


def _document(text: str) -> dict[str, JsonValue] | None:
    whole = text.strip()
    inner = whole[whole.find("{") : whole.rfind("}") + 1]
    for candidate in (whole, inner):
        try:
            document = msgspec.json.decode(candidate)
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            return document
    return None


def _finding(entry: dict[str, JsonValue]) -> ReviewFinding:
    return ReviewFinding(
        _text(entry.get("title")), _text(entry.get("body")), _location(entry.get("code_location"))
    )


def _location(place: JsonValue) -> str | None:
    if not isinstance(place, dict):
        return None
    path = _text(place.get("absolute_file_path") or place.get("path"))
    lines = place.get("line_range")
    start, end = (lines.get("start"), lines.get("end")) if isinstance(lines, dict) else (None, None)
    if not path or not isinstance(start, int):
        return path or None
    return f"{path}:{start}-{end if isinstance(end, int) else start}"


def _entry(finding: ReviewFinding) -> str:
    title = finding.title or "(no title)"
    head = f"- {title} — {finding.location}" if finding.location else f"- {title}"
    return "\n".join([head, *(f"  {line}".rstrip() for line in finding.body.splitlines())])


def _text(value: JsonValue) -> str:
    return value.strip() if isinstance(value, str) else ""
