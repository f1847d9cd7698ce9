"""A server for tests of unattended sessions: the prompt lists, step by step, what it does.

As a program it plays one scenario on its own pipes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.client.fake import (
    ROOT,
    SECONDS,
    SESSION,
    THREAD,
    TURN,
    Actor,
    Fake,
    Scenario,
    ServerLog,
    answers,
    serving,
    turn,
)
from treadle.client._runtime.reconnect import Backoff
from treadle.client.connectors import Where
from treadle.protocol.base import JsonValue
from treadle.unattended import Session, SessionEvent, SessionOptions

Step = list[JsonValue]

ORPHANS = "leaves a child"
QUICK = Backoff(attempts=2, first_s=0.0, longest_s=0.0)
END: Step = ["notify", "turn/completed", {"turn": turn("completed")}]


async def play(actor: Actor, request: JsonValue) -> None:
    """Play the steps that the input lists as JSON."""
    steps: list[Step] = json.loads(request["params"]["input"][0]["text"])
    for name, *arguments in steps:
        match name, arguments:
            case "begin", [turn_id]:
                await actor.answer(request, {"turn": {**turn(), "id": turn_id}})
            case "answer", [result]:
                await actor.answer(request, result)
            case "refuse", [code, words]:
                await actor.refuse(request, code, words)
            case "notify", [method, params]:
                await actor.notify(method, **params)
            case "send", [document]:
                await actor.send(document)
            case "raw", [text]:
                await actor.send_raw(text.encode("utf-8", "surrogateescape"))
            case "ask", [id_, method, params]:
                await actor.put(id_, method, **params)
            case "exit", [code]:
                await leave(actor, code)
            case _:
                raise ValueError(name)


async def leave(actor: Actor, code: int) -> None:
    """Disconnect; a process exits with a code and a word on stderr."""
    if os.environ.get("TREADLE_FAKE_PROCESS"):
        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os._exit(code)
    await actor.exit(code, "last words\n")


async def say_nothing(actor: Actor, request: JsonValue) -> None:
    """Do not answer."""


async def refuse(actor: Actor, request: JsonValue) -> None:
    """Answer with an error."""
    await actor.refuse(request, -32600, "not today")


async def exit_at_once(actor: Actor, request: JsonValue) -> None:
    """Exit instead of answering."""
    await leave(actor, 3)


async def talk_first(actor: Actor, request: JsonValue) -> None:
    """Send notifications and requests while the client waits for an answer, and answer last."""
    await actor.send({"method": "thread/started", "params": {"thread": SESSION["thread"]}})
    await actor.put("early", "currentTime/read")
    await actor.answer(request, SESSION)


async def compact(actor: Actor, request: JsonValue) -> None:
    """Compact the history, in a separate turn."""
    await actor.answer(request, {})
    await actor.notify(
        "turn/completed", turn={**turn("completed"), "id": "turn-c"}, turnId="turn-c"
    )


async def end_unheard(actor: Actor, request: JsonValue) -> None:
    """Answer that the stored turn has ended."""
    thread = {**SESSION["thread"], "turns": [turn("completed")]}
    await actor.answer(request, {"thread": thread})


async def forget_threads(actor: Actor, request: JsonValue) -> None:
    """Refuse every thread as unknown, with the text of the reference."""
    await actor.refuse(request, -32600, "no rollout found for thread id thr-1")


async def run_command(actor: Actor, request: JsonValue) -> None:
    """Run a command, as a server does whose sandbox can read everything."""
    params = request["params"]
    process = await asyncio.create_subprocess_exec(
        *params["command"], cwd=params["cwd"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    stdout, stderr = await process.communicate()
    await actor.answer(
        request,
        {"exitCode": process.returncode, "stdout": stdout.decode(), "stderr": stderr.decode()},
    )


SCENARIOS: dict[str, Scenario] = {
    "runs commands": {"command/exec": run_command},
    "leaves commands unanswered": {"command/exec": say_nothing},
    "refuses commands": {"command/exec": refuse},
    "answers commands with nonsense": {"command/exec": answers({"exitCode": "none"})},
    "steps": {"thread/compact/start": compact, "thread/name/set": answers({})},
    "no handshake": {"initialize": say_nothing},
    "no thread": {"thread/start": say_nothing},
    "thread refused": {"thread/start": refuse},
    "thread without an id": {"thread/start": answers({"thread": {}})},
    "exits at once": {"initialize": exit_at_once},
    "exits at thread/start": {"thread/start": exit_at_once},
    "talks first": {"thread/start": talk_first},
    "ends unheard": {"thread/read": end_unheard},
    "forgets threads": {"thread/resume": forget_threads},
}
for _scenario in SCENARIOS.values():
    _scenario.setdefault("turn/start", play)  # type: ignore[attr-defined]  # they are dicts


@dataclass
class Stage:
    """A session that is not started yet, its events, and the messages that its server received."""

    session: Session
    events: list[SessionEvent]
    log: ServerLog
    workspace: str
    is_begun: asyncio.Event

    async def until_started(self) -> None:
        """Wait until a turn runs."""
        await self.is_begun.wait()

    def event_names(self, *left_out: str) -> list[str]:
        """Return the kinds of events so far, with the methods of those that have one."""
        made = [f"{e.event} {e.method}" if e.method else str(e.event) for e in self.events]
        return [each for each in made if each not in left_out]


@asynccontextmanager
async def staged(
    kind: str, folder: Path, scenario: str = "steps", **options: JsonValue
) -> AsyncIterator[Stage]:
    """Yield a session with a server that plays a scenario, over one of the transports."""
    log_path = folder / "heard"
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    events: list[SessionEvent] = []
    is_begun = asyncio.Event()

    def listen(event: SessionEvent) -> None:
        events.append(event)
        if event.event == "session_started":
            is_begun.set()

    async with asyncio.timeout(SECONDS), reached(kind, scenario, log_path) as where:
        arguments = {"cwd": workspace, "server": where, "on_event": listen, "uses_git": False}
        env = {"PYTHONPATH": str(ROOT)}
        session = Session(SessionOptions(**{**arguments, "env": env, **options}))
        try:
            yield Stage(session, events, ServerLog(log_path), str(workspace), is_begun)
        finally:
            await session.close()


@asynccontextmanager
async def reached(kind: str, scenario: str, log_path: Path) -> AsyncIterator[Where]:
    """Yield the address of the server."""
    if scenario == ORPHANS:
        yield command(scenario, log_path)
        return
    async with serving(kind, Fake(SCENARIOS[scenario], log_path)) as where:
        yield where


def command(scenario: str, log_path: Path) -> list[str]:
    """Return the command of a process that plays a scenario."""
    return [sys.executable, "-m", "tests.unattended.fake", scenario, str(log_path)]


async def _serve_pipes(name: str, log_path: Path) -> None:
    from treadle.transport.stdio import stdio

    if name == ORPHANS:
        # The server and its own child process both ignore SIGTERM.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)  # noqa: ASYNC220
        log_path.with_name("child").write_text(str(child.pid))
        name = "steps"
        await Fake(SCENARIOS[name], log_path).attach(stdio())
        await asyncio.Event().wait()
    await Fake(SCENARIOS[name], log_path).attach(stdio())


def turn_prompt(*steps: Step, turn_id: str = TURN) -> str:
    """Return a prompt: the turn starts, then these steps."""
    started = ["notify", "turn/started", {"turn": {**turn(), "id": turn_id}, "turnId": turn_id}]
    return json.dumps([["begin", turn_id], started, *steps])


def usage(total: int, last: int, thread_id: str = THREAD, turn_id: str = TURN) -> Step:
    """Return a step that reports tokens, all of them input."""

    def counts(number: int) -> JsonValue:
        return {
            "inputTokens": number,
            "cachedInputTokens": 0,
            "outputTokens": 0,
            "reasoningOutputTokens": 0,
            "totalTokens": number,
        }

    token_usage = {"total": counts(total), "last": counts(last)}
    ids = {"threadId": thread_id, "turnId": turn_id}
    return ["notify", "thread/tokenUsage/updated", {**ids, "tokenUsage": token_usage}]


def failed(info: JsonValue, turn_id: str = TURN) -> list[JsonValue]:
    """Return a step in which the turn fails."""
    error = {"message": "no", "codexErrorInfo": info}
    ended = {**turn("failed", error=error), "id": turn_id}
    return ["notify", "turn/completed", {"turn": ended, "turnId": turn_id}]


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


if __name__ == "__main__":
    os.environ["TREADLE_FAKE_PROCESS"] = "1"
    asyncio.run(_serve_pipes(sys.argv[1], Path(sys.argv[2])))
