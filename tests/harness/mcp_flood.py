"""An MCP server on stdin and stdout whose answers are too large, unreadable or endless.

The name of a tool says how it answers. `echo` is an ordinary tool: it shows that the connection
still works.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count
from typing import Any

MIB = 1024 * 1024
FORM = {"type": "object", "properties": {}}
IDS = count()
REQUESTS = {"pings": "ping", "roots": "roots/list", "unknown": "no/such/method"}


def write(line: str) -> None:
    """Write one line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def send(**message: Any) -> None:  # noqa: ANN401 - any JSON
    """Write one message."""
    write(json.dumps({"jsonrpc": "2.0", **message}))


def result_of(name: str) -> str:
    """Return the result of a tool as JSON text."""
    text = {"type": "text", "text": "x"}
    results = {
        "echo": json.dumps({"content": [{**text, "text": f"process {os.getpid()}"}]}),
        "large": json.dumps({"content": [{**text, "text": "x" * 17 * MIB}]}),
        "long": json.dumps({"content": [{**text, "text": "x" * 3 * MIB}]}),
        "long_structure": json.dumps({"content": [], "structuredContent": {"a": "x" * 3 * MIB}}),
        "parts": json.dumps({"content": [text] * 1_500}),
        "values": json.dumps({"content": [], "structuredContent": {"a": [[]] * 150_000}}),
        "marks": json.dumps({"content": [{**text, "text": "[{,}]" * 100_000}]}),
        "nested": '{"content": [], "structuredContent": ' + '{"a":' * 500 + "1" + "}" * 501,
        "surrogate": r'{"content": [{"type": "text", "text": "\ud800"}]}',
        "digits": '{"content": [], "structuredContent": {"a": ' + "9" * 5_000 + "}}",
    }
    return results[name]


def reply(id_: int, name: str) -> None:
    """Answer a call with the result of a tool."""
    write(f'{{"jsonrpc": "2.0", "id": {id_}, "result": {result_of(name)}}}')


QUESTIONS = {"ask": 1, "ask_at_once": 1_000}
PROGRESS: dict[str, list[Any]] = {
    "malformed_progress": [{"text": "quoted"}] * 10,
    "progress": ["x" * MIB, "second", "y" * MIB, "fourth"],
    "much_progress": ["x" * 5_000] * 3_000,
}


def call(id_: int, params: Any) -> None:  # noqa: ANN401 - any JSON
    """Answer the call of a tool."""
    name = params["name"]
    if name == "ask_long":
        ask("x" * MIB, f"long-{id_}")
    elif name in QUESTIONS:
        for _question in range(QUESTIONS[name]):
            ask("Again?", f"q{next(IDS)}")
    elif name in PROGRESS:
        token = params["_meta"]["progressToken"]
        for step, words in enumerate(PROGRESS[name]):
            progress = {"progressToken": token, "progress": step, "message": words}
            send(method="notifications/progress", params=progress)
        reply(id_, "echo")
    elif name in REQUESTS:
        # More than both pipes hold; the answers are not read meanwhile.
        for number in range(20_000):
            send(id=f"p{number}", method=REQUESTS[name])
    elif name == "endless":
        while True:
            sys.stdout.write("x" * MIB)
    else:
        reply(id_, name)


def ask(text: str, id_: str) -> None:
    """Ask the user something; the id says what the answer leads to."""
    meta = {"codex_approval_kind": "mcp_tool_call", "note": "kept"}
    asked = {"message": text, "requestedSchema": FORM, "_meta": meta}
    send(id=id_, method="elicitation/create", params=asked)


def main() -> None:
    """Serve until the client closes stdin."""
    names = ["ask", "ask_at_once", "ask_long", "endless", "echo", "large", "long", "parts"]
    names += [*REQUESTS, *PROGRESS]
    names += [
        "malformed_notes",
        "long_structure",
        "values",
        "marks",
        "nested",
        "surrogate",
        "digits",
    ]
    reads = {"readOnlyHint": True}
    tools = [{"name": name, "inputSchema": FORM, "annotations": reads} for name in names]
    about = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "flood", "version": "1"},
    }
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            send(id=message["id"], result=about)
        elif method == "tools/list":
            send(id=message["id"], result={"tools": tools})
        elif method == "tools/call":
            call(message["id"], message["params"])
        elif method is None and str(message.get("id")).startswith("q"):
            ask("Again?", f"q{next(IDS)}")
        elif method is None and str(message.get("id")).startswith("long-"):
            text = {"type": "text", "text": message["result"]["action"]}
            send(id=int(message["id"].removeprefix("long-")), result={"content": [text]})


if __name__ == "__main__":
    main()
