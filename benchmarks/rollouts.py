"""Writes small stored threads quickly, in the format that all programs read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

PER_SECOND: Final = 5
PER_DAY: Final = 1_000
_BEGIN: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


def write_threads(home: Path, total: int, *, cwd: str) -> set[str]:
    """Fill a home with threads of one turn, several per second, and return their ids."""
    ids: set[str] = set()
    for number in range(total):
        day, place = divmod(number, PER_DAY)
        at = _BEGIN + timedelta(days=day, seconds=place // PER_SECOND)
        id_ = f"019b7000-0000-7000-8000-{number:012x}"
        folder = home / "sessions" / f"{at:%Y}" / f"{at:%m}" / f"{at:%d}"
        if not place:
            folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"rollout-{at:%Y-%m-%dT%H-%M-%S}-{id_}.jsonl"
        file.write_bytes(_lines(id_, f"{at:%Y-%m-%dT%H:%M:%S}.000Z", cwd, number))
        ids.add(id_)
    return ids


def _lines(id_: str, at: str, cwd: str, number: int) -> bytes:
    question, answer = f"question {number}", f"answer {number}"
    meta = {
        "id": id_,
        "timestamp": at,
        "cwd": cwd,
        "originator": "bench",
        "cli_version": "0.118.0",
        "source": "vscode",
        "model_provider": "mock",
    }
    user_content = [{"type": "input_text", "text": question}]
    assistant_content = [{"type": "output_text", "text": answer}]
    turn = {"turn_id": f"turn-{number}"}
    lines = [
        ("session_meta", meta),
        ("event_msg", {"type": "task_started", **turn, "model_context_window": None}),
        ("response_item", {"type": "message", "role": "user", "content": user_content}),
        ("event_msg", {"type": "user_message", "message": question, "images": []}),
        ("event_msg", {"type": "agent_message", "message": answer}),
        ("response_item", {"type": "message", "role": "assistant", "content": assistant_content}),
        ("event_msg", {"type": "task_complete", **turn, "last_agent_message": answer}),
    ]
    return b"".join(
        json.dumps({"timestamp": at, "type": kind, "payload": payload}).encode() + b"\n"
        for kind, payload in lines
    )
