"""`treadle run --unattended`: a piece of work from the command line, with nobody watching."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Final

from treadle.cli.run_output import RunOutput
from treadle.client._runtime.find import find_command
from treadle.client._runtime.reconnect import Backoff
from treadle.client.connectors import Where, connector_of
from treadle.client.terminal.prompt import Terminal, terminal_policy
from treadle.support.text.terminal import prose
from treadle.unattended import RunPlan, SessionError, SessionOptions, TurnReport, run_unattended

NOT_DONE: Final = 3
"""The exit code when there are no turns left and the check still says no."""
_TURNS: Final = 20


def run(given: Namespace) -> int:
    """Do what the prompt says and give the exit code, which tells how it ended."""
    if given.prompt == "-" and given.questions == "ask":
        print("Error: questions cannot be asked where the prompt is read from", file=sys.stderr)
        return 2
    prompt = _prompt(given.prompt)
    fault = "the prompt is no text in UTF-8" if prompt is None else _fault(given)
    if prompt is not None and not prompt.strip():
        fault = "the prompt is empty"
    if prompt is None or fault is not None:
        print(f"Error: {prose(str(fault))}", file=sys.stderr)
        return 2
    return asyncio.run(_run(given, prompt))


def _prompt(said: str) -> str | None:
    """What is to be done; nothing if it cannot be read."""
    try:
        prompt = sys.stdin.read() if said == "-" else said
        prompt.encode()
    except UnicodeError:
        return None
    return prompt


def _fault(given: Namespace) -> str | None:
    """What is wrong with the arguments beyond their form."""
    for name in ("stall_seconds", "turn_seconds", "read_seconds", "retry_seconds", "max_failures"):
        if getattr(given, name) < 0:
            return f"--{name.replace('_', '-')} is below zero"
        if not isfinite(getattr(given, name)):
            return f"--{name.replace('_', '-')} is no number of seconds"
    for name in ("max_turns", "max_tokens", "read_seconds"):
        least = getattr(given, name)
        if least is not None and least <= 0:
            return f"--{name.replace('_', '-')} leaves nothing to work with"
    if given.token_env and not os.environ.get(given.token_env):
        return f"--token-env: {given.token_env} is not set"
    if given.state and (Path(given.state).is_dir() or not Path(given.state).parent.is_dir()):
        return f"--state: {given.state!r} is no place for a file"
    try:
        connector_of(_server(given))
    except ValueError as error:
        return str(error)
    return None


async def _run(given: Namespace, prompt: str) -> int:
    output = RunOutput(as_json=given.json)
    stopped: list[int] = []
    _on_signals(stopped)
    try:
        report = await run_unattended(prompt, _options(given, output), _plan(given))
    except SessionError as error:
        output.failed(error)
        return error.exit_code
    except asyncio.CancelledError:
        if not stopped:
            raise
        return 128 + stopped[0]
    exit_code = NOT_DONE if given.until and report.ending == "max_turns" else 0
    output.ended(report, exit_code)
    return exit_code


def _on_signals(stopped: list[int]) -> None:
    """Let Ctrl-C and a service manager end the run in order: the turn, the server, then us."""
    work = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        stopped.append(number)
        if work is not None:
            work.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)


def _options(given: Namespace, output: RunOutput) -> SessionOptions:
    terminal = Terminal()
    may_ask = given.questions == "ask"
    is_strict = given.approval_policy != "never"
    return SessionOptions(
        cwd=given.cwd,
        workspace_root=given.workspace_root,
        server=_server(given),
        token=os.environ.get(given.token_env) if given.token_env else None,
        resume=given.resume,
        title=given.title,
        model=given.model,
        approval_policy=given.approval_policy,
        sandbox=given.sandbox,
        questions=given.questions,
        on_question=terminal.user_input if may_ask else None,
        approvals=terminal_policy(terminal) if may_ask and is_strict else None,
        on_event=output.event,
        read_seconds=given.read_seconds,
        stall_seconds=given.stall_seconds or None,
        turn_seconds=given.turn_seconds or None,
        max_tokens=given.max_tokens,
        hidden_env=[given.token_env] if given.token_env else [],
    )


def _server(given: Namespace) -> Where:
    if given.url is not None:
        url: str = given.url
        return url
    if given.server_command is not None:
        return shlex.split(given.server_command)
    settings = (word for each in given.config for word in ("-c", each))
    return [*find_command("treadle", workspace=given.cwd), *settings]


def _plan(given: Namespace) -> RunPlan:
    turns = given.max_turns or (_TURNS if given.until else 1)
    return RunPlan(
        max_turns=turns,
        is_done=_check(given.until, given.cwd) if given.until else None,
        retry=Backoff(attempts=given.max_failures, first_s=given.retry_seconds, longest_s=300.0),
        state=Path(given.state) if given.state else None,
    )


def _check(command: str, cwd: str) -> Callable[[TurnReport], Awaitable[bool]]:
    """Whether a command of the user's succeeds; what it prints goes to stderr."""

    async def check(_report: TurnReport) -> bool:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
        )
        try:
            return await process.wait() == 0
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise

    return check
