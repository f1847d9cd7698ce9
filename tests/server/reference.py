"""The reference's own server, to compare answers with."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from treadle.protocol.base import JsonValue


def ask_reference(
    program: str, home: Path, method: str, params: JsonValue, *, flags: Sequence[str] = ()
) -> JsonValue:
    """Send one request to a reference server in one of our homes, and end it."""
    opening = {
        "clientInfo": {"name": "t", "version": "1"},
        "capabilities": {"experimentalApi": True},
    }
    lines = [
        {"id": 1, "method": "initialize", "params": opening},
        {"method": "initialized"},
        {"id": 2, "method": method, "params": params},
    ]
    words = [word for flag in flags for word in ("-c", flag)]
    with subprocess.Popen(
        [program, *words, "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)},
        cwd=home,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
        process.stdin.flush()
        for line in process.stdout:
            message = json.loads(line)
            if message.get("id") == 2:
                process.stdin.close()
                process.terminate()
                return message["result"]
    raise AssertionError("the reference did not answer")
