"""`treadle exec`: one task from the command line, with the server in this process.

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
from treadle.cli.exec.prompt import ExecError
from treadle.cli.exec.task import ExecTask, read_task
from treadle.cli.exec.text import TextOutput
from treadle.client.async_client import AsyncClient
from treadle.client.errors import ClientError, TurnUnsuccessful
from treadle.client.thread import AsyncThread
from treadle.client.turn import AsyncTurn
from treadle.config.configuration import Configuration
from treadle.protocol.base import JsonValue
from treadle.server.server import Server
from treadle.support import logs
from treadle.support.text.terminal import one_line, prose

ORIGINATOR: Final = "CODEX_INTERNAL_ORIGINATOR_OVERRIDE"
_END_SECONDS: Final = 5.0
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ANY_SOURCE: Final = ("cli", "vscode", "exec", "appServer", "unknown")


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    # Until there is a turn to interrupt, a signal ends the program at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    args = parse(arguments)
    logs.configure()
    try:
        work = read_task(args)
    except ExecError as error:
        print(prose(str(error)), file=sys.stderr)
        return 1
    if args.add_dir and work.sandbox == "read-only":
        print("warning: --add-dir has no effect in a read-only sandbox", file=sys.stderr)
    signals: list[int] = []
    exit_code = asyncio.run(_run(work, signals))
    if signal.SIGTERM in signals:
        # The parent sees the signal, as with a program that has no handler.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    return exit_code


async def _run(work: ExecTask, signals: list[int]) -> int:
    server = Server(configuration=work.configuration, source="exec")
    output = _output(work)
    stop = _on_signals(signals)
    output.on_reader_gone = stop
    client = AsyncClient.in_process(
        server,
        cwd=work.cwd,
        client_name=os.environ.get(ORIGINATOR) or "codex_exec",
        sandbox=None,
        approval_policy="never" if work.never_asks else "on-request",
        request_timeout=None,
        turn_idle_timeout=None,
        reconnect=False,
    )
    client.on("*", output.receive)
    try:
        async with client:
            return await _work(client, work, output)
    except ClientError as error:
        print(f"Error: {prose(str(error))}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        if not signals:
            raise
        return 1
    finally:
        await server.close()


def _output(work: ExecTask) -> ExecOutput:
    if work.args.json:
        return JsonOutput()
    return TextOutput(work.args.color, shows_reasoning=not work.settings.hide_agent_reasoning)


def _on_signals(signals: list[int]) -> Callable[[], object]:
    """Interrupt the turn on SIGINT and SIGTERM; return a function that does the same."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("not in a task")

    def stop(number: int) -> None:
        signals.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    return partial(stop, signal.SIGPIPE)


async def _work(client: AsyncClient, work: ExecTask, output: ExecOutput) -> int:
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
        pass  # the output has shown it as an event
    except asyncio.CancelledError:
        # The turn is being interrupted; show its end before the program ends.
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await output.ended.wait()
        raise
    await output.ended.wait()
    if text is None:
        return 1
    output.final_message(text)
    if work.args.output_last_message is not None:
        _write_last_message(text, work.args.output_last_message, work.configuration)
    return 0


def _turn(thread: AsyncThread, work: ExecTask) -> AsyncTurn:
    if work.review is not None:
        return thread.review(work.review, idle_timeout=None)
    return thread.stream(
        [*work.images, work.prompt or ""],
        idle_timeout=None,
        output_schema=work.output_schema,
        effort=work.settings.as_set.model_reasoning_effort,
        cyber_access_program=work.args.cyber_access_program,
    )


async def _open(client: AsyncClient, work: ExecTask) -> AsyncThread:
    args = work.args
    thread_id = await _thread_id(client, work) if args.command in ("resume", "fork") else None
    if thread_id is None:
        return await client.start_thread(ephemeral=args.ephemeral, thread_source=args.thread_source)
    # A resumed thread takes the current settings, not its stored ones.
    settings: dict[str, JsonValue] = {
        "approval_policy": "never" if work.never_asks else "on-request",
        "approvals_reviewer": work.settings.approvals_reviewer,
        "cwd": work.cwd,
        "model": work.settings.as_set.model,
        "model_provider": work.settings.as_set.model_provider,
        "sandbox": work.sandbox,
    }
    if args.command == "resume":
        return await client.resume_thread(thread_id, exclude_turns=True, **settings)
    return await client.fork_thread(
        thread_id,
        exclude_turns=True,
        ephemeral=args.ephemeral,
        thread_source=args.thread_source,
        **settings,
    )


async def _thread_id(client: AsyncClient, work: ExecTask) -> str | None:
    """Return the thread by its id, name or latest use; `None` if there is no latest one."""
    args = work.args
    if args.thread is not None and _UUID.fullmatch(args.thread):
        id_: str = args.thread
        return id_
    async for thread in client.iter_threads(
        cwd=None if args.thread is not None or args.all else str(work.cwd),
        sort_key="updated_at",
        source_kinds=list(_ANY_SOURCE),
        model_providers=[],
    ):
        if args.thread in (None, thread.name):
            return thread.id
    if args.thread is not None:
        message = f"Session not found: {args.thread}"
        raise ClientError(message)
    return None


def _write_last_message(text: str, name: str, configuration: Configuration) -> None:
    name_shown = one_line(name)
    if not text:
        warning = f"Warning: no last agent message; wrote empty content to {name_shown}"
        print(warning, file=sys.stderr)
    try:
        write_message(text, name, configuration.opened_roots.may_have_made)
    except OSError as error:
        failure = f"Failed to write last message file {name_shown}: {error.strerror}"
        print(failure, file=sys.stderr)
