"""An MCP server on stdin and stdout whose list of tools is too long, or changes all the time."""

from __future__ import annotations

import json
import sys
from itertools import count
from typing import Any

KIND = sys.argv[1]
MIB = 1024 * 1024
# After so many lists, the one that only claims to change has another tool.
LISTS = 20


def tool(name: str, description: str = "") -> Any:  # noqa: ANN401 - any JSON
    """Describe a tool."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def page(number: int) -> Any:  # noqa: ANN401 - any JSON
    """Return a page of the list, counted from one over all lists."""
    if KIND == "many":
        return {"tools": [tool(f"t{number}_{each}") for each in range(1000)], "nextCursor": "c"}
    if KIND == "large":
        return {"tools": [tool(f"t{number}", "x" * 4 * MIB)], "nextCursor": "c"}
    name = str(number) if KIND == "changing" else "new" if number > LISTS else "old"
    return {"tools": [tool(name)]}


def send(**message: Any) -> None:  # noqa: ANN401 - any JSON
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer requests until the end of the input."""
    numbers = count(1)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "lists", "version": "1"}
            version = message["params"]["protocolVersion"]
            about = {
                "protocolVersion": version,
                "capabilities": capabilities,
                "serverInfo": info,
            }
            send(id=message["id"], result=about)
        elif message.get("method") == "tools/list":
            number = next(numbers)
            send(id=message["id"], result=page(number))
            if KIND in ("changing", "same") and number <= LISTS:
                send(method="notifications/tools/list_changed")
        elif "id" in message:
            send(id=message["id"], result={})


if __name__ == "__main__":
    main()
