"""A client that times requests and turns, and parses most messages only after the clock stopped.

Only approvals are parsed while the clock runs.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.mock_model import prompt_for_commands, prompt_for_pieces
from benchmarks.programs import Program
from benchmarks.servers import Server, ServerFailed
from benchmarks.wires import PipeWire, Tally, ask, initialize, limited
from treadle.protocol.base import JsonValue

# A first listing of 100,000 threads takes half a minute on a good day.
SESSION_SECONDS: Final = 300.0
# Outside any repository: the cost of git is not measured.
WORK: Final = tempfile.gettempdir()
_CONFIG: Final = """\
model = "mock-model"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "read-only"

[model_providers.mock]
name = "mock"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
requires_openai_auth = false
"""


class Timed(NamedTuple):
    """An answer as raw bytes, and the time until it arrived."""

    line: bytes
    seconds: float

    def result(self) -> JsonValue:
        """Return the result of the answer.

        Raises:
            ServerFailed: the answer is an error.
        """
        message = json.loads(self.line)
        if "result" not in message:
            raise ServerFailed(f"refused: {message.get('error')}")
        return message["result"]


class TimedClient:
    """One client of one server, over its stdin and stdout."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._wire = PipeWire(server)
        self._pending = bytearray()
        # Long ids, so that nothing else in a message looks like one.
        self._ids = count(1_000_000_001)

    def initialize(self) -> None:
        """Perform the handshake, and wait until the server is ready."""
        initialize(self._wire)
        ask(self._wire)

    def ask(self, method: str, params: Mapping[str, object]) -> Timed:
        """Send a request and wait for its answer; earlier messages are discarded."""
        id_ = next(self._ids)
        return self._send_until(self._frame(id_, method, params), b'"id":%d' % id_)

    def ask_until(self, method: str, params: Mapping[str, object], mark: bytes) -> Timed:
        """Send a request, and wait for a message with the mark instead of the answer."""
        return self._send_until(self._frame(next(self._ids), method, params), mark)

    def timed_thread_start(self) -> Timed:
        """Start a thread, and return the timed answer."""
        return self.ask("thread/start", {"cwd": WORK})

    def start_thread(self, **params: object) -> str:
        """Start a thread, and return its id."""
        answer = self.ask("thread/start", {"cwd": WORK, **params})
        return str(answer.result()["thread"]["id"])

    def run_commands(self, thread_id: str, commands: Sequence[Mapping[str, object]]) -> Timed:
        """Run a turn with commands; approvals are accepted at once."""
        text = [{"type": "text", "text": prompt_for_commands(commands)}]
        data = self._frame(next(self._ids), "turn/start", {"threadId": thread_id, "input": text})
        received = bytearray()
        began = time.perf_counter()
        self._wire.send(data)
        while True:
            line = self._next_line()
            received += line + b"\n"
            if b'requestApproval"' in line:
                answer = {"id": json.loads(line)["id"], "result": {"decision": "accept"}}
                self._wire.send(self._wire.frame(json.dumps(answer).encode()))
            elif b'"method":"turn/completed"' in line:
                return Timed(bytes(received), time.perf_counter() - began)

    def run_turns(self, thread_ids: Sequence[str], deltas: int) -> Timed:
        """Start a turn in each of these threads and wait until all have ended."""
        text = [{"type": "text", "text": prompt_for_pieces(deltas)}]
        data = b"".join(
            self._frame(next(self._ids), "turn/start", {"threadId": id_, "input": text})
            for id_ in thread_ids
        )
        ended, received = Tally(b'"method":"turn/completed"'), bytearray()
        began = time.perf_counter()
        self._wire.send(data)
        while ended.total < len(thread_ids):
            chunk = self._receive()
            ended.add(chunk)
            received += chunk
        took = time.perf_counter() - began
        complete, _, self._pending = received.rpartition(b"\n")
        return Timed(bytes(complete), took)

    def _send_until(self, data: bytes, mark: bytes) -> Timed:
        began = time.perf_counter()
        self._wire.send(data)
        while True:
            line = self._next_line()
            if mark in line:
                return Timed(line, time.perf_counter() - began)

    def _frame(self, id_: int, method: str, params: Mapping[str, object]) -> bytes:
        return self._wire.frame(
            json.dumps({"id": id_, "method": method, "params": params}).encode()
        )

    def _next_line(self) -> bytes:
        looked = 0
        while (end := self._pending.find(b"\n", looked)) < 0:
            looked = len(self._pending)
            self._pending += self._receive()
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        return line

    def _receive(self) -> bytes:
        chunk = self._wire.receive()
        if not chunk:
            raise EOFError
        return chunk


@contextmanager
def timed_client(program: Program, home: Path, url: str = "") -> Iterator[TimedClient]:
    """Run a server and connect to it; `url` is the base URL of its model, if it needs one."""
    configure(home / program.name, url)
    with Server(program, home) as server, limited(server, SESSION_SECONDS):
        client = TimedClient(server)
        client.initialize()
        yield client


def configure(home: Path, url: str) -> None:
    """Configure a home to use the model at this address."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(_CONFIG.format(url=url), "utf-8")


def answers_by_thread(received: bytes) -> dict[str, str]:
    """Return the text of each thread's answer, assembled from the deltas in order."""
    parts: dict[str, list[str]] = {}
    for line in received.splitlines():
        if b'"item/agentMessage/delta"' in line:
            params = json.loads(line)["params"]
            parts.setdefault(params["threadId"], []).append(params["delta"])
    return {thread_id: "".join(each) for thread_id, each in parts.items()}
