"""`treadle exec`: one piece of work from the command line, with the server in this process.

Arguments, events and exit codes are those of `codex exec`, which programs such as the official
TypeScript SDK are written for.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from treadle.cli.exec.arguments import parse
from treadle.cli.exec.events import JsonOutput
from treadle.cli.exec.last_message import write_message
from treadle.cli.exec.output import ExecOutput, Opened
from treadle.cli.exec.plan import ExecPlan, plan
from treadle.cli.exec.prompt import ExecError
from treadle.cli.exec.text import TextOutput
from treadle.client.async_client import AsyncClient
from treadle.client.errors import ClientError, TurnUnsuccessful
from treadle.client.thread import AsyncThread
from treadle.client.turn import AsyncTurn
from treadle.config.configuration import Configuration
from treadle.protocol.base import JsonValue
from treadle.server.server import Server
from treadle.support import logs
from treadle.support.text.terminal import prose

ORIGINATOR: Final = "CODEX_INTERNAL_ORIGINATOR_OVERRIDE"
_END_SECONDS: Final = 5.0
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ANY_SOURCE: Final = ("cli", "vscode", "exec", "appServer", "unknown")


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says and give the exit code."""
    # Until there is a turn to interrupt, a signal ends the program as any other.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    given = parse(arguments)
    logs.configure()
    try:
        work = plan(given)
    except ExecError as error:
        print(prose(str(error)), file=sys.stderr)
        return 1
    if given.add_dir and work.sandbox == "read-only":
        print("warning: --add-dir changes nothing in a read-only sandbox", file=sys.stderr)
    stopped: list[int] = []
    exit_code = asyncio.run(_run(work, stopped))
    if signal.SIGTERM in stopped:
        # Whoever ended us is told so, as by any program that has no handler.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    return exit_code


async def _run(work: ExecPlan, stopped: list[int]) -> int:
    server = Server(configuration=work.configuration, source="exec")
    output = _output(work)
    stop = _on_signals(stopped)
    output.on_deaf = stop
    client = AsyncClient.in_process(
        server,
        cwd=work.cwd,
        client_name=os.environ.get(ORIGINATOR) or "codex_exec",
        sandbox=None,
        approval_policy="never" if work.is_never_asked else "on-request",
        request_timeout=None,
        turn_silence=None,
        reconnect=False,
    )
    client.on("*", output.hear)
    try:
        async with client:
            return await _work(client, work, output)
    except ClientError as error:
        print(f"Error: {prose(str(error))}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        if not stopped:
            raise
        return 1
    finally:
        await server.close()


def _output(work: ExecPlan) -> ExecOutput:
    if work.given.json:
        return JsonOutput()
    return TextOutput(work.given.color, shows_reasoning=not work.settings.hide_agent_reasoning)


def _on_signals(stopped: list[int]) -> Callable[[], object]:
    """Let Ctrl-C and a service manager interrupt the turn; the call does the same."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("not in a task")

    def stop(number: int) -> None:
        stopped.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    return partial(stop, signal.SIGPIPE)


async def _work(client: AsyncClient, work: ExecPlan, output: ExecOutput) -> int:
    thread = await _open(client, work)
    if thread.session is None:
        raise RuntimeError("an open thread has a session")
    summary = work.settings.model_reasoning_summary or "none"
    output.begin(Opened(thread.session, work.prompt or "", summary))
    if work.prompt is None and work.review is None:
        return 0
    turn = _turn(thread, work)
    text: str | None = None
    try:
        text = (await turn.result()).agent_message
    except TurnUnsuccessful:
        pass  # the output has it among the events
    except asyncio.CancelledError:
        # The turn is being interrupted; its end is told before ours.
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await output.ended.wait()
        raise
    await output.ended.wait()
    if text is None:
        return 1
    output.final_message(text)
    if work.given.output_last_message is not None:
        _keep(text, work.given.output_last_message, work.configuration)
    return 0


def _turn(thread: AsyncThread, work: ExecPlan) -> AsyncTurn:
    if work.review is not None:
        return thread.review(work.review, silence=None)
    return thread.stream(
        [*work.images, work.prompt or ""],
        silence=None,
        output_schema=work.output_schema,
        effort=work.settings.as_set.model_reasoning_effort,
        cyber_access_program=work.given.cyber_access_program,
    )


async def _open(client: AsyncClient, work: ExecPlan) -> AsyncThread:
    given = work.given
    thread_id = await _thread_id(client, work) if given.command in ("resume", "fork") else None
    if thread_id is None:
        return await client.start_thread(
            ephemeral=given.ephemeral, thread_source=given.thread_source
        )
    # A thread that is gone on with takes today's settings, not those it was left with.
    settings: dict[str, JsonValue] = {
        "approval_policy": "never" if work.is_never_asked else "on-request",
        "approvals_reviewer": work.settings.approvals_reviewer,
        "cwd": work.cwd,
        "model": work.settings.as_set.model,
        "model_provider": work.settings.as_set.model_provider,
        "sandbox": work.sandbox,
    }
    if given.command == "resume":
        return await client.resume_thread(thread_id, exclude_turns=True, **settings)
    return await client.fork_thread(
        thread_id,
        exclude_turns=True,
        ephemeral=given.ephemeral,
        thread_source=given.thread_source,
        **settings,
    )


async def _thread_id(client: AsyncClient, work: ExecPlan) -> str | None:
    """The thread that is meant, by its id, its name or its time; `None` if none was last."""
    given = work.given
    if given.thread is not None and _UUID.fullmatch(given.thread):
        id_: str = given.thread
        return id_
    async for thread in client.iter_threads(
        cwd=None if given.thread is not None or given.all else str(work.cwd),
        sort_key="updated_at",
        source_kinds=list(_ANY_SOURCE),
        model_providers=[],
    ):
        if given.thread in (None, thread.name):
            return thread.id
    if given.thread is not None:
        message = f"Session not found: {given.thread}"
        raise ClientError(message)
    return None


def _keep(text: str, name: str, configuration: Configuration) -> None:
    if not text:
        print(f"Warning: no last agent message; wrote empty content to {name}", file=sys.stderr)
    try:
        write_message(text, name, configuration.opened_roots.may_have_made)
    except OSError as error:
        print(f"Failed to write last message file {name}: {error.strerror}", file=sys.stderr)
