"""`treadle demo`: real servers, sandboxed commands, approvals, a kill -9, all transports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from treadle.client.approvals import CommandApproval
from treadle.client.async_client import AsyncClient
from treadle.client.events import (
    AgentMessageDelta,
    Event,
    ItemCompleted,
    ItemStarted,
    TurnCompleted,
    TurnPlanUpdated,
)
from treadle.client.thread import AsyncThread
from treadle.protocol.base import JsonValue
from treadle.protocol.item import CommandExecutionThreadItem
from treadle.support.text.terminal import one_line, prose
from treadle.transport.subprocess import SubprocessTransport, spawn

_SERVER: Final = [sys.executable, "-P", "-m", "treadle", "app-server"]
_CONFIG: Final = """\
sandbox_mode = "workspace-write"
approval_policy = "on-request"

# The demonstration itself lives in the temporary folder: only its workspace may be written.
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
"""
_START_SECONDS: Final = 20


def demo() -> int:
    """Run the demonstration."""
    print("Treadle: a second Codex app-server. No key, no network, nothing left behind.")
    print("The model is a script that comes with it; servers, commands and sandbox are real.")
    with tempfile.TemporaryDirectory(prefix="treadle-demo-") as folder:
        asyncio.run(_demo(Path(folder)))
    print("\nEvery server above was a real process; all of them have ended.")
    return 0


async def _demo(folder: Path) -> None:
    stage = _Stage(folder)
    url = f"unix://{folder / 'control.sock'}"
    client = AsyncClient(url, cwd=stage.work)
    async with asyncio.TaskGroup() as tasks:
        async with stage.server(url) as first:
            client.on_command_approval(_Decider(first.pid).decide)
            await client.connect()
            print("\n1. An agent works: the sandbox stops it where it must, and you decide")
            thread = await client.start_thread()
            print(f"   thread/start -> {thread.id}")
            await _watch(thread, "Write me a greeting, here and next door.")
            stage.report("next-door.txt", "letter.txt")
            print("\n2. The server is killed (kill -9) while it waits for your answer")
            turn = tasks.create_task(_watch(thread, "And one more letter."))
            while await first.receive():
                pass  # it writes nothing to stdout; the loop ends with the process
        stage.play(_LAST)
        async with stage.server(url):
            print("   ... another server starts; the client and the turn continue by themselves")
            await turn
            stage.report("second-letter.txt")
            page = await client.list_threads()
            print(f"   thread/list  -> {[each.preview for each in page.data]}")
            await client.close()
    await _other_transports(stage, folder)


class _Stage:
    """A home, a workspace and the model's script, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        home = folder / "home"
        for place in (self.work, home):
            place.mkdir()
        (home / "config.toml").write_text(_CONFIG)
        self._script = folder / "script.json"
        self.play(_script(folder))
        # A separate home and no keys: the demo does not use the user's configuration or account.
        self.environ = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
        self.environ |= {"TREADLE_HOME": str(home), "TREADLE_SCRIPT": str(self._script)}

    def play(self, answers: list[list[JsonValue]]) -> None:
        """Write the script for the next server's model."""
        self._script.write_text(json.dumps({"responses": answers, "then": "fail"}))

    @asynccontextmanager
    async def server(self, url: str, *flags: str) -> AsyncIterator[SubprocessTransport]:
        """Run a listening server until the block ends."""
        server = spawn([*_SERVER, "--listen", url, *flags], env=self.environ)
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not _is_up(server, url):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.01)
            yield server
        finally:
            if server.exit_code is None:
                os.kill(server.pid, signal.SIGTERM)
            await server.close()

    def report(self, *names: str) -> None:
        """Print which files exist outside the workspace."""
        for name in names:
            path = self.folder / name
            state = f"written: {path.read_text().strip()!r}" if path.exists() else "not written"
            print(f"   {name} outside the workspace: {state}")


class _Decider:
    """Decides in the user's place: declines once, kills the server once, and accepts the rest."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    async def decide(self, approval: CommandApproval) -> bool:
        print(f"\n   ? may this run outside the sandbox: {one_line(str(approval.command))}")
        print(f"     because: {one_line(str(approval.reason))}")
        if "second-letter" in (approval.command or "") and self._pid:
            print(f"     (kill -9 {self._pid})")
            pid, self._pid = self._pid, 0
            os.kill(pid, signal.SIGKILL)
            await asyncio.Event().wait()  # this request ends with its connection
        is_allowed = "next-door" not in (approval.command or "")
        print(f"     you say: {'yes' if is_allowed else 'no'}")
        return is_allowed


async def _watch(thread: AsyncThread, text: str) -> None:
    print(f"   turn/start   -> {text!r}\n")
    async for event in thread.stream(text):
        _show(event)


def _show(event: Event) -> None:
    match event:
        case AgentMessageDelta(delta=delta):
            print(prose(delta), end="", flush=True)
        case TurnPlanUpdated(plan=plan):
            print(
                "   plan: " + "; ".join(f"[{each.status}] {one_line(each.step)}" for each in plan)
            )
        case ItemStarted(item=CommandExecutionThreadItem(command=command)):
            print(f"\n   $ {one_line(command)}")
        case ItemCompleted(item=CommandExecutionThreadItem() as done):
            code = "" if done.exit_code is None else f", exit code {done.exit_code}"
            output = prose((done.aggregated_output or "").strip())
            print(f"     {done.status}{code}" + (f": {output}" if output else ""))
        case TurnCompleted(turn=turn):
            print(f"\n   turn/completed: {turn.status} in {turn.duration_ms} ms")
        case _:
            pass


async def _other_transports(stage: _Stage, folder: Path) -> None:
    print("\n3. The same server on other transports")
    token = folder / "token"
    token.write_text("a-secret-of-this-demo")
    token.chmod(0o600)
    flags = ["--ws-auth", "capability-token", "--ws-token-file", str(token)]
    async with stage.server("ws://127.0.0.1:0", *flags) as server:
        url = server.stderr_tail.split("listening on: ", 1)[1].split()[0]
        async with AsyncClient(url, token=token.read_text()) as client:
            print(f"   WebSocket    -> {one_line(client.server.user_agent)}")
    async with AsyncClient(_SERVER, env=stage.environ) as client:
        print(f"   stdio        -> {one_line(client.server.user_agent)}")


def _is_up(server: SubprocessTransport, url: str) -> bool:
    """Return whether the server listens, from its banner or a test connection."""
    if server.exit_code is not None:
        raise RuntimeError(server.stderr_tail)
    if not url.startswith("unix://"):
        return "listening on" in server.stderr_tail
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(url.removeprefix("unix://")) == 0


def _script(folder: Path) -> list[list[JsonValue]]:
    """Return the model's script: each list is one response."""
    door, letter, second = (
        folder / f"{name}.txt" for name in ("next-door", "letter", "second-letter")
    )
    return [
        [
            _says("I write a greeting here, and then I try the neighbours.\n"),
            _plan("in_progress", "pending"),
            _runs("echo 'Hello from the sandbox' > greeting.txt && cat greeting.txt"),
        ],
        [_runs(f"echo hello > {door}")],
        [_asks(f"echo hello > {door}", "the sandbox did not let me write there")],
        [_asks(f"echo 'Dear neighbour' > {letter}", "a letter may be welcome")],
        [_plan("completed", "completed")],
        [_says("The greeting is here; one letter was refused and one delivered.")],
        [_asks(f"echo 'Dear neighbour, again' > {second}", "the other one was short")],
    ]


def _says(text: str) -> JsonValue:
    return {"type": "says", "text": text, "deltas": [f"{word} " for word in text.split(" ")]}


def _plan(here: str, there: str) -> JsonValue:
    steps = [{"step": "Greet here", "status": here}, {"step": "Greet next door", "status": there}]
    return {"type": "calls", "tool": "update_plan", "arguments": {"plan": steps}}


def _runs(command: str, **more: JsonValue) -> JsonValue:
    arguments = {"cmd": command, "login": False, **more}
    return {"type": "calls", "tool": "exec_command", "arguments": arguments}


def _asks(command: str, reason: str) -> JsonValue:
    return _runs(command, sandbox_permissions="require_escalated", justification=reason)


_LAST: Final = [[_says("The second letter is delivered as well.")]]
