"""Small rollouts as the reference writes them, reduced to the parts that matter."""

from __future__ import annotations

import json
from pathlib import Path

from treadle.protocol.base import JsonValue

Json = dict[str, JsonValue]

THREAD = "0199c3a0-0000-7000-8000-000000000001"
FORK = "0199c3a0-0000-7000-8000-000000000002"
FIRST, SECOND = "0199c3a0-1111-7000-8000-000000000001", "0199c3a0-1111-7000-8000-000000000002"


def time_at(second: int) -> str:
    return f"2026-11-16T08:20:{second:02}.500Z"


def seconds_at(second: int) -> int:
    return 1_794_817_200 + second


def write(home: Path, thread_id: str, lines: list[Json], *, suffix: str = "") -> Path:
    """Write lines to the path that the reference would use."""
    folder = home / "sessions" / "2026" / "11" / "16"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rollout-2026-11-16T08-20-00-{thread_id}{suffix}.jsonl"
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return path


def line(second: int, kind: str, payload: Json) -> Json:
    return {"timestamp": time_at(second), "type": kind, "payload": payload}


def event(second: int, kind: str, **fields: JsonValue) -> Json:
    return line(second, "event_msg", {"type": kind, **fields})


def session(**changes: JsonValue) -> Json:
    payload: Json = {
        "id": THREAD,
        "timestamp": time_at(0),
        "cwd": "/ws",
        "originator": "probe",
        "cli_version": "0.118.0",
        "source": "vscode",
        "model_provider": "mock_provider",
        "base_instructions": {"text": "be a coding agent"},
        "git": {"commit_hash": "abc", "branch": "main"},
    }
    return line(0, "session_meta", payload | changes)


def response(second: int, **item: JsonValue) -> Json:
    return line(second, "response_item", item)


def message_line(second: int, role: str, text: str, **extra: JsonValue) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return response(second, type="message", role=role, content=content, **extra)


def turn_context(second: int, turn_id: str, **changes: JsonValue) -> Json:
    payload: Json = {
        "turn_id": turn_id,
        "cwd": "/ws/inner",
        "current_date": "2026-11-16",
        "timezone": "Etc/UTC",
        "approval_policy": "on-request",
        "sandbox_policy": {
            "type": "workspace-write",
            "writable_roots": ["/more"],
            "network_access": True,
            "exclude_tmpdir_env_var": False,
            "exclude_slash_tmp": True,
        },
        "model": "gpt-test",
        "personality": "pragmatic",
        "collaboration_mode": {
            "mode": "default",
            "settings": {
                "model": "gpt-test",
                "reasoning_effort": None,
                "developer_instructions": None,
            },
        },
        "realtime_active": False,
        "effort": "high",
        "summary": "auto",
        "truncation_policy": {"mode": "bytes", "limit": 10000},
    }
    return line(second, "turn_context", payload | changes)


def tokens(number: int) -> Json:
    return {
        "input_tokens": number,
        "cached_input_tokens": 2,
        "output_tokens": 0,
        "reasoning_output_tokens": 0,
        "total_tokens": number,
    }


def token_count(second: int, last: int, total: int) -> Json:
    info = {
        "total_token_usage": tokens(total),
        "last_token_usage": tokens(last),
        "model_context_window": 258400,
    }
    return event(second, "token_count", info=info, rate_limits={"limit_id": "codex"})


DURATION = {"secs": 1, "nanos": 6_450_000}
COMMAND: Json = {
    "command": ["/bin/bash", "-lc", "cat a.txt"],
    "cwd": "/ws",
    "parsed_cmd": [{"type": "read", "cmd": "cat a.txt", "name": "a.txt", "path": "a.txt"}],
    "source": "unified_exec_startup",
    "aggregated_output": "hi\n",
    "exit_code": 0,
    "duration": DURATION,
    "status": "completed",
    "process_id": "80747",
}

OLD: list[Json] = [
    session(),
    event(1, "task_started", turn_id=FIRST, model_context_window=258400),
    message_line(1, "developer", "<permissions instructions>"),
    turn_context(1, FIRST),
    message_line(1, "user", "look at it"),
    event(
        1,
        "user_message",
        message="look at it",
        images=["data:image/png;base64,AA=="],
        local_images=["/pictures/a.png"],
        text_elements=[{"byte_range": {"start": 0, "end": 4}, "placeholder": "LOOK"}],
    ),
    event(1, "token_count", info=None, rate_limits=None),
    event(2, "agent_reasoning", text="**one**"),
    event(2, "agent_reasoning", text="two"),
    response(2, type="reasoning", summary=[], encrypted_content="e=="),
    response(2, type="function_call", name="exec_command", arguments="{}", call_id="call-1"),
    event(2, "exec_command_end", call_id="call-1", turn_id=FIRST, **COMMAND),
    response(2, type="function_call_output", call_id="call-1", output="hi"),
    event(
        3,
        "patch_apply_end",
        call_id="call-2",
        success=True,
        changes={"/ws/b": {"type": "update", "unified_diff": "@@", "move_path": None}},
    ),
    event(
        3,
        "mcp_tool_call_end",
        call_id="call-3",
        invocation={"server": "s", "tool": "t", "arguments": {"a": 1}},
        duration=DURATION,
        result={"Ok": {"content": [{"type": "text", "text": "x"}]}},
    ),
    event(3, "web_search_end", call_id="ws", query="q", action={"type": "open_page", "url": "u"}),
    event(
        3,
        "item_completed",
        thread_id=THREAD,
        turn_id=FIRST,
        item={"type": "Plan", "id": "plan", "text": "1. look"},
    ),
    event(4, "agent_message", message="seen", phase=None, memory_citation=None),
    message_line(4, "assistant", "seen"),
    token_count(4, 15, 15),
    event(4, "task_complete", turn_id=FIRST, last_agent_message="seen"),
    event(5, "task_started", turn_id=SECOND, model_context_window=258400),
    message_line(5, "user", "stop"),
    event(5, "user_message", message="stop", images=[], local_images=[], text_elements=[]),
    message_line(6, "user", "<turn_aborted>"),
    event(6, "turn_aborted", turn_id=SECOND, reason="interrupted"),
]
