"""`treadle run --unattended`: a task from the command line, without supervision."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Final

from treadle.cli.run_output import RunOutput
from treadle.client._runtime.find import find_command
from treadle.client._runtime.reconnect import Backoff
from treadle.client.connectors import Where, connector_of
from treadle.client.terminal.prompt import Terminal, terminal_policy
from treadle.support.home import home_folder
from treadle.support.text.terminal import prose
from treadle.unattended import RunPlan, SessionError, SessionOptions, TurnReport, run_unattended

NOT_DONE: Final = 3
"""The exit code when the maximum number of turns is reached and the check still fails."""
_TURNS: Final = 20


def run(args: Namespace) -> int:
    """Run the prompt and return the exit code."""
    if args.prompt == "-" and args.questions == "ask":
        print("Error: --questions ask needs stdin, which the prompt is read from", file=sys.stderr)
        return 2
    prompt = _prompt(args.prompt)
    error_text = "prompt is not valid UTF-8" if prompt is None else _argument_error(args)
    if prompt is not None and not prompt.strip():
        error_text = "prompt is empty"
    if prompt is None or error_text is not None:
        print(f"Error: {prose(str(error_text))}", file=sys.stderr)
        return 2
    return asyncio.run(_run(args, prompt))


def _prompt(argument: str) -> str | None:
    """Return the prompt; `None` if it is not valid text."""
    try:
        prompt = sys.stdin.read() if argument == "-" else argument
        prompt.encode()
    except UnicodeError:
        return None
    return prompt


def _argument_error(args: Namespace) -> str | None:
    """Return what is wrong with the arguments, beyond their syntax."""
    for name in ("stall_seconds", "turn_seconds", "read_seconds", "retry_seconds", "max_failures"):
        if getattr(args, name) < 0:
            return f"--{name.replace('_', '-')} must not be negative"
        if not isfinite(getattr(args, name)):
            return f"--{name.replace('_', '-')} must be a finite number"
    for name in ("max_turns", "max_tokens", "read_seconds"):
        limit = getattr(args, name)
        if limit is not None and limit <= 0:
            return f"--{name.replace('_', '-')} must be positive"
    if args.token_env and not os.environ.get(args.token_env):
        return f"--token-env: {args.token_env} is not set"
    if args.state and (Path(args.state).is_dir() or not Path(args.state).parent.is_dir()):
        return f"--state: {args.state!r} is not a valid file path"
    if args.state and (reason := _planted_link(args.state, args.cwd)):
        return f"--state: {reason}"
    try:
        connector_of(_server(args))
    except ValueError as error:
        return str(error)
    return None


def _planted_link(name: str, cwd: str) -> str | None:
    """Return what is wrong with the links of a path, which a sandboxed command may have made.

    Each link in the workspace counts: the record does not cover the commands of other servers.
    """
    from treadle.sandbox.opened_roots import OpenedRoots
    from treadle.sandbox.paths import is_within, real, resolve

    opened = OpenedRoots(Path(home_folder()))
    workspace = real(cwd)
    try:
        resolve(name, lambda link: not (is_within(link, workspace) or opened.may_have_made(link)))
    except OSError:
        return f"{name!r} has a link that a sandboxed command may have made"
    return None


async def _run(args: Namespace, prompt: str) -> int:
    output = RunOutput(as_json=args.json)
    signals: list[int] = []
    _on_signals(signals)
    try:
        report = await run_unattended(prompt, _options(args, output), _plan(args))
    except SessionError as error:
        output.failed(error)
        return error.exit_code
    except OSError as error:
        # Of the state file: a command can put anything in its place.
        print(f"Error: {prose(str(error))}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        if not signals:
            raise
        return 128 + signals[0]
    exit_code = NOT_DONE if args.until and report.ending == "max_turns" else 0
    output.ended(report, exit_code)
    return exit_code


def _on_signals(signals: list[int]) -> None:
    """End the run in order on SIGINT and SIGTERM: the turn, the server, then the program."""
    work = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        signals.append(number)
        if work is not None:
            work.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)


def _options(args: Namespace, output: RunOutput) -> SessionOptions:
    terminal = Terminal()
    may_ask = args.questions == "ask"
    is_strict = args.approval_policy != "never"
    return SessionOptions(
        cwd=args.cwd,
        workspace_root=args.workspace_root,
        server=_server(args),
        token=os.environ.get(args.token_env) if args.token_env else None,
        resume=args.resume,
        title=args.title,
        model=args.model,
        approval_policy=args.approval_policy,
        sandbox=args.sandbox,
        questions=args.questions,
        on_question=terminal.user_input if may_ask else None,
        approvals=terminal_policy(terminal) if may_ask and is_strict else None,
        on_event=output.event,
        read_seconds=args.read_seconds,
        stall_seconds=args.stall_seconds or None,
        turn_seconds=args.turn_seconds or None,
        max_tokens=args.max_tokens,
        hidden_env=[args.token_env] if args.token_env else [],
    )


def _server(args: Namespace) -> Where:
    if args.url is not None:
        url: str = args.url
        return url
    if args.server_command is not None:
        return shlex.split(args.server_command)
    settings = (word for each in args.config for word in ("-c", each))
    return [*find_command("treadle", workspace=args.cwd), *settings]


def _plan(args: Namespace) -> RunPlan:
    turns = args.max_turns or (_TURNS if args.until else 1)
    return RunPlan(
        max_turns=turns,
        is_done=_check(args.until, args.cwd) if args.until else None,
        recheck=partial(_passes, args.until, args.cwd) if args.until else None,
        retry=Backoff(attempts=args.max_failures, first_s=args.retry_seconds, longest_s=300.0),
        state=Path(args.state) if args.state else None,
    )


def _check(command: str, cwd: str) -> Callable[[TurnReport], Awaitable[bool]]:
    """Return a check that runs the user's command."""

    async def check(_report: TurnReport) -> bool:
        return await _passes(command, cwd)

    return check


async def _passes(command: str, cwd: str) -> bool:
    """Return whether the user's command succeeds; its output goes to stderr."""
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
