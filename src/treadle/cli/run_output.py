"""The output of `treadle run`: text lines, or one JSON document per line."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from treadle.protocol.base import JsonValue
from treadle.support.text.terminal import one_line, prose, shortened
from treadle.unattended import RunReport, SessionError, SessionEvent

_WIDTH: Final = 200


class RunOutput:
    """Prints the events of a run."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def event(self, event: SessionEvent) -> None:
        """Print one event; the text output skips those that mean nothing to a person."""
        if self._as_json:
            _write(msgspec.json.encode(event).decode())
        elif (line := _line(event)) is not None:
            _write(_with_marked_lines(line))

    def ended(self, report: RunReport, exit_code: int) -> None:
        """Print the result of the run."""
        turns, tokens = len(report.turns), report.usage.total_tokens
        if self._as_json:
            _document(
                event="run_ended",
                ending=report.ending,
                exitCode=exit_code,
                threadId=report.thread_id,
                turns=turns,
                failures=report.failures,
                usage=report.usage.document(),
                agentMessage=report.agent_message,
            )
        else:
            thread_id = one_line(str(report.thread_id))
            _write(f"{report.ending}: {turns} turns, {tokens} tokens, thread {thread_id}")

    def failed(self, error: SessionError) -> None:
        """Print why the run failed: as JSON to stdout, as text to stderr."""
        notes = getattr(error, "__notes__", [])
        if self._as_json:
            payload = {**error.payload_document(), "notes": notes}
            _document(event="run_ended", ending="failed", exitCode=error.exit_code, error=payload)
            return
        lines = (f"Error: {error.kind}: {error}", *notes)
        print(*map(_with_marked_lines, lines), sep="\n  ", file=sys.stderr)


def _document(**fields: JsonValue) -> None:
    _write(msgspec.json.encode(fields).decode())


def _with_marked_lines(text: str) -> str:
    """Remove control characters and mark continuation lines, so that text cannot imitate output."""
    return prose(text).replace("\n", "\n  | ")


def _write(line: str) -> None:
    print(line, flush=True)


def _line(event: SessionEvent) -> str | None:
    payload = event.payload if isinstance(event.payload, dict) else {}
    match str(event.event):
        case "session_started":
            # A session of an unattended run is one turn.
            return f"turn {event.session_id}"
        case "notification":
            return _notification(event.method or "", payload)
        case "malformed" | "other_message":
            return f"? {_short(str(event.payload))}"
        case "turn_completed":
            return f"turn completed, {payload.get('usage', {}).get('totalTokens', 0)} tokens"
        case "turn_ended_with_error" | "startup_failed":
            return f"! {payload.get('kind')}: {payload.get('message')}"
        case "retrying":
            return f"! retrying in {payload.get('waitSeconds', 0):.0f} s"
        case "session_ended":
            return None
        case kind:
            return f"{kind.replace('_', ' ')}: {_subject(event.method or '', payload)}"


def _notification(method: str, params: dict[str, JsonValue]) -> str | None:
    item = params.get("item")
    if method == "item/completed" and isinstance(item, dict):
        return _item(item)
    if method in ("warning", "configWarning", "error"):
        error = params.get("error")
        message = error.get("message") if isinstance(error, dict) else None
        return f"! {_short(str(message or params.get('message') or params.get('summary')))}"
    return None


def _item(item: dict[str, JsonValue]) -> str | None:
    match item.get("type"):
        case "agentMessage":
            return f"agent: {item.get('text')}"
        case "commandExecution":
            command = shortened(one_line(str(item.get("command"))), _WIDTH)
            return f"$ {command} -> {item.get('exitCode')}"
        case "fileChange":
            paths = [one_line(str(each.get("path"))) for each in item.get("changes") or ()]
            return f"edit {item.get('status')}: {', '.join(paths)}"
        case "mcpToolCall" | "dynamicToolCall":
            return f"tool {item.get('tool')}: {item.get('status')}"
        case _:
            return None


def _subject(method: str, payload: dict[str, JsonValue]) -> str:
    params = payload.get("params")
    fields = params if isinstance(params, dict) else {}
    if command := fields.get("command"):
        return shortened(one_line(str(command)), _WIDTH)
    subject = fields.get("tool") or fields.get("message")
    return _short(str(subject)) if subject else method


def _short(text: str) -> str:
    line = one_line(" ".join(text.split()))
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
