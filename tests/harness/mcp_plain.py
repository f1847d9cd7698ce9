"""An MCP server written by hand: lines of JSON on stdin and stdout, and no SDK.

It shares no code with our client, and starts fast. `MCP_LATE` is its start
delay in seconds.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = Any
PIXEL = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
READS = {"readOnlyHint": True}
FIRST = {
    "uri": "memo://first",
    "name": "first",
    "description": "The first memo.",
    "mimeType": "text/plain",
}
UNLISTED: list[str] = []
WAS_ASKED = threading.Event()
GO_ON = threading.Event()
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Refused(Exception):
    """A request that is answered with an error."""


class Peer:
    """The client: receives answers, notifications and requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, queue.Queue[Json]] = {}

    def send(self, **message: Json) -> None:
        """Write one line."""
        with self._lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def ask(self, method: str, params: Json) -> Json:
        """Send a request and wait for the answer."""
        id_ = f"q{len(self._answers)}"
        self._answers[id_] = queue.Queue()
        self.send(id=id_, method=method, params=params)
        return self._answers[id_].get()

    def take(self, answer: Json) -> None:
        """Deliver an answer to the request that waits for it."""
        if answer.get("id") in self._answers:
            self._answers[answer["id"]].put(answer.get("result") or {"action": "error"})


def text(words: str) -> Json:
    """A result that is one text."""
    return {"content": [{"type": "text", "text": words}]}


def fail(_peer: Peer, _params: Json) -> Json:
    """Fail, in the tool's own words."""
    return {**text("it broke"), "isError": True}


def picture(_peer: Peer, _params: Json) -> Json:
    """Show a picture."""
    image = {"type": "image", "data": PIXEL, "mimeType": "image/gif"}
    return {"content": [{"type": "text", "text": "a pixel"}, image]}


def add(_peer: Peer, params: Json) -> Json:
    """Give a result with a shape."""
    given = params["arguments"]
    total = {"total": given["a"] + given["b"]}
    return {**text(json.dumps(total)), "structuredContent": total}


def steps(peer: Peer, params: Json) -> Json:
    """Report progress."""
    token = params["_meta"]["progressToken"]
    for step in (1, 2):
        progress = {"progressToken": token, "progress": step, "total": 2, "message": f"step {step}"}
        peer.send(method="notifications/progress", params=progress)
    return text("done")


def linger(_peer: Peer, params: Json) -> Json:
    """Take very long; leaves a file when it has begun."""
    if mark := params.get("arguments", {}).get("mark"):
        Path(mark).touch()
    time.sleep(60)
    return text("at last")


def die(_peer: Peer, _params: Json) -> Json:
    """End the server in the middle of a call."""
    sys.stderr.write("I am dying\n")
    sys.stderr.flush()
    os._exit(3)


def give(_peer: Peer, params: Json) -> Json:
    """Give back whatever was asked for, fitting or not."""
    return params["arguments"]["result"]


def garble(_peer: Peer, params: Json) -> Json:
    """Write something else than an answer, and then nothing."""
    sys.stdout.write(params["arguments"]["line"] + "\n")
    sys.stdout.flush()
    threading.Event().wait()


def grow(peer: Peer, _params: Json) -> Json:
    """Get one more tool."""
    TOOLS["late"] = ("Was not there before.", {}, READS, lambda _peer, _params: text("late"))
    peer.send(method="notifications/tools/list_changed")
    return text("grown")


def hush(peer: Peer, params: Json) -> Json:
    """Say that the tools have changed, and then not which there are; waits until it was asked."""
    UNLISTED.append(params["arguments"]["how"])
    peer.send(method="notifications/tools/list_changed")
    WAS_ASKED.wait()
    return text("hushed")


def listed() -> Json:
    """The tools, unless they are kept secret."""
    if not UNLISTED:
        return {"tools": [described(name) for name in list(TOOLS)]}
    WAS_ASKED.set()
    if UNLISTED == ["silence"]:
        threading.Event().wait()
    raise Refused("not now")


def ask(peer: Peer, _params: Json) -> Json:
    """Ask the user for a name."""
    answer = peer.ask("elicitation/create", {"message": "Name?", "requestedSchema": FORM})
    return text(f"{answer['action']} {answer.get('content', {}).get('name', '')}".strip())


def ask_in_vain(peer: Peer, params: Json) -> Json:
    """Ask the user for a name without waiting for the answer; continue when signalled."""
    form = {"message": "Name?", "requestedSchema": FORM}
    peer.send(id="vain", method="elicitation/create", params=form)
    GO_ON.wait()
    if params["arguments"].get("withdraws"):
        peer.send(method="notifications/cancelled", params={"requestId": "vain"})
    return text("never mind")


def go_on(_peer: Peer, _params: Json) -> Json:
    """Let a caller continue that gets no answer."""
    GO_ON.set()
    return text("going on")


def ask_url(peer: Peer, _params: Json) -> Json:
    """Ask the user to open a page."""
    page = {"mode": "url", "url": "https://example.com/sign", "elicitationId": "e-1"}
    return text(peer.ask("elicitation/create", {**page, "message": "Sign here"})["action"])


def says(template: str) -> Callable[[Peer, Json], Json]:
    """A tool that only says something."""
    return lambda _peer, params: text(template.format(**{"text": "", **params["arguments"]}))


TEXT = {"text": {"type": "string"}}
NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
SAFE = {"destructiveHint": False, "openWorldHint": False}
TOOLS: dict[str, tuple[str, Json, Json, Callable[[Peer, Json], Json]]] = {
    "echo": ("Say it again.", TEXT, READS, says("echo: {text}")),
    "plain": ("Say nothing of what it does.", TEXT, None, says("plain: {text}")),
    "danger": ("Destroy something.", {}, {"destructiveHint": True}, says("gone")),
    "note": ("Write down something.", {}, SAFE, says("noted")),
    "fail": ("Fail.", {}, READS, fail),
    "environment": (
        "A variable of the server.",
        {"name": {"type": "string"}},
        READS,
        lambda _peer, params: text(os.environ.get(params["arguments"]["name"], "(not set)")),
    ),
    "process": (
        "The number of the server's process.",
        {},
        READS,
        lambda _peer, _params: text(str(os.getpid())),
    ),
    "add": ("Add two numbers.", NUMBERS, READS, add),
    "picture": ("Show a picture.", {}, READS, picture),
    "steps": ("Report progress.", {}, READS, steps),
    "linger": ("Take very long.", {"mark": {"type": "string"}}, READS, linger),
    "die": ("End the server.", {}, READS, die),
    "give": ("Give back anything.", {"result": {}}, READS, give),
    "garble": ("Give back nothing that can be read.", TEXT, READS, garble),
    "grow": ("Get one more tool.", {}, READS, grow),
    "hush": ("List no tools any more.", {"how": {"type": "string"}}, READS, hush),
    "ask": ("Ask the user for a name.", {}, READS, ask),
    "ask_in_vain": ("Ask, and do not wait.", {}, READS, ask_in_vain),
    "go_on": ("Wait no more.", {}, READS, go_on),
    "ask_url": ("Ask the user to open a page.", {}, READS, ask_url),
}


def described(name: str) -> Json:
    """A tool as it is listed."""
    words, properties, hints, _ = TOOLS[name]
    schema = {"type": "object", "properties": properties}
    tool = {"name": name, "description": words, "inputSchema": schema}
    return tool if hints is None else {**tool, "annotations": hints}


def answer(peer: Peer, method: str, params: Json) -> Json:
    """The result of a request."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"resources": {}, "tools": {"listChanged": True}},
            "serverInfo": {"name": "harness", "version": "1.0"},
            "instructions": "Be kind to this server.",
        }
    if method == "tools/list":
        return listed()
    if method == "tools/call" and params["name"] in TOOLS:
        return TOOLS[params["name"]][3](peer, {"arguments": {}, **params})
    if method == "resources/list":
        return {"resources": [FIRST]}
    if method == "resources/templates/list":
        template = {"uriTemplate": "memo://by/{author}", "name": "by author"}
        return {"resourceTemplates": [template]}
    if method == "resources/read":
        return {
            "contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": memo(params)}]
        }
    raise Refused(f"Unknown: {method}")


def memo(params: Json) -> str:
    """What a document says."""
    if params["uri"] == FIRST["uri"]:
        return "buy milk"
    if params["uri"].startswith("memo://by/"):
        return f"memos by {params['uri'].removeprefix('memo://by/')}"
    raise Refused(f"Unknown resource: {params['uri']}")


def serve(peer: Peer, request: Json) -> None:
    """Answer one request."""
    try:
        peer.send(id=request["id"], result=answer(peer, request["method"], request.get("params")))
    except Refused as refused:
        peer.send(id=request["id"], error={"code": -32002, "message": str(refused)})


def main() -> None:
    """Serve until the client has gone."""
    time.sleep(float(os.environ.get("MCP_LATE", "0")))
    peer = Peer()
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            peer.take(message)
        elif "id" in message:
            threading.Thread(target=serve, args=(peer, message), daemon=True).start()


if __name__ == "__main__":
    main()
