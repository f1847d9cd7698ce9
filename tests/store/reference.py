"""Drives the reference's own server over stdio, with a scripted model."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from treadle.protocol.base import JsonValue

Json = dict[str, JsonValue]

CONFIG = """
model = "mock-model"
model_provider = "mock_provider"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.mock_provider]
name = "Mock"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


class Model:
    """Answers each request with the next items of a script, or with `done`."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.script: deque[list[Json]] = deque()
        self.count = 0
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                model.requests.append(json.loads(self.rfile.read(length)))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                self.wfile.write(model.answer())

            def do_GET(self) -> None:
                self.send_error(404)

            def log_message(self, *_: object) -> None:
                """Log nothing: the test reports."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def answer(self) -> bytes:
        self.count += 1
        items = self.script.popleft() if self.script else [says("done", self.count)]
        response_id = f"resp-{self.count}"
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        events: list[Json] = [{"type": "response.created", "response": {"id": response_id}}]
        for item in items:
            events.append({"type": "response.output_item.added", "item": item})
            events.append({"type": "response.output_item.done", "item": item})
        end = {"id": response_id, "usage": usage}
        events.append({"type": "response.completed", "response": end})
        lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return "".join(lines).encode()

    def seen(self) -> list[str]:
        """Return the texts of the last request, without the environment context."""
        texts = []
        for item in self.requests[-1]["input"]:
            if item["type"] == "message" and item["role"] != "developer":
                texts += [part["text"] for part in item["content"]]
            elif item["type"].endswith("_output"):
                texts.append(item["output"])
        return [text for text in texts if not text.startswith("<environment_context>")]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


def says(text: str, number: int) -> Json:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "id": f"msg-{number}", "content": content}


class Reference:
    """A running app-server of the reference."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._last_id = 0
        info = {"name": "tests", "version": "1"}
        self.call("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})

    def call(self, method: str, params: Json) -> Json:
        """Send a request; messages before its answer are ignored."""
        assert self._process.stdin is not None
        self._last_id += 1
        request = {"id": self._last_id, "method": method, "params": params}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._until("id", self._last_id)
        result: Json = answer.get("result", answer)
        return result

    def turn(self, thread_id: str, text: str) -> Json:
        """Run a turn to its end."""
        given = [{"type": "text", "text": text}]
        self.call("turn/start", {"threadId": thread_id, "input": given})
        return self.turn_end()

    def turn_end(self) -> Json:
        """Wait for the end of a turn."""
        turn: Json = self._until("method", "turn/completed")["params"]["turn"]
        return turn

    def _until(self, key: str, value: JsonValue) -> Json:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message: Json = json.loads(line)
            if message.get(key) == value:
                return message
        raise EOFError(f"the reference ended before {value}")


@contextmanager
def running(binary: Path, home: Path, model: Model) -> Iterator[Reference]:
    """Run an app-server on a home."""
    workspace = home / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(CONFIG.format(port=model.server.server_address[1]))
    environment = {"PATH": os.environ["PATH"], "HOME": str(workspace), "CODEX_HOME": str(home)}
    with subprocess.Popen(
        [str(binary), "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=workspace,
    ) as process:
        try:
            yield Reference(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
