"""Runs the command of a hook: outside the sandbox, owned, and limited in time and output."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from treadle.engine.hooks.outputs import HookAnswer
from treadle.engine.hooks.programs.startup import may_read_startup_files
from treadle.engine.terminals.shell import environment, shell_argv, without_startup_files
from treadle.sandbox.policy import UNRESTRICTED
from treadle.sandbox.process import Process

if TYPE_CHECKING:
    from treadle.engine.hooks.hook import Hook
    from treadle.engine.state import ThreadState

MAX_STDOUT: Final = 1024 * 1024
MAX_STDERR: Final = 64 * 1024
MAX_SECONDS: Final = 24 * 60 * 60


class _Outputs:
    """Keeps what a hook prints, up to limits."""

    def __init__(self) -> None:
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self.is_too_long = asyncio.Event()

    def add(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        kept = self._kept[stream]
        room = (MAX_STDOUT if stream == "stdout" else MAX_STDERR) - len(kept)
        kept += data[: max(0, room)]
        # Of messages for people, the beginning is enough.
        if len(data) > room and stream == "stdout":
            self.is_too_long.set()

    def text(self, stream: Literal["stdout", "stderr"]) -> str:
        return self._kept[stream].decode("utf-8", "replace")


async def run_command(thread: ThreadState, hook: Hook, command: str, payload: bytes) -> HookAnswer:
    """Run a command with the event as JSON on stdin; whatever it leaves running is ended."""
    settings, outputs = thread.settings, _Outputs()
    timeout_s = hook.timeout_s
    argv, env = await thread.services.file_workers.run(_shell, thread, hook, command)
    process: Process | None = None
    try:
        async with asyncio.timeout(min(timeout_s, MAX_SECONDS)):
            process = await Process.start(
                thread.services.sandbox,
                argv,
                cwd=settings.cwd,
                env=env,
                confinement=UNRESTRICTED,
                on_output=outputs.add,
                has_stdin=True,
                limits=settings.shell.command_limits(),
            )
            exit_code = await _finished(process, outputs, payload)
    except TimeoutError:
        return HookAnswer(error=f"hook timed out after {timeout_s}s")
    except OSError as error:
        return HookAnswer(error=f"hook cannot be started: {error.strerror or error}")
    finally:
        if process is not None:
            process.kill()
    if exit_code is None:
        return HookAnswer(error=f"hook wrote more than {MAX_STDOUT} bytes to stdout")
    if process.limit_hit is not None:
        return HookAnswer(error=f"hook exceeded a limit of commands: {process.limit_hit}")
    return HookAnswer(exit_code, outputs.text("stdout"), outputs.text("stderr"))


async def _finished(process: Process, outputs: _Outputs, payload: bytes) -> int | None:
    """Wait for the exit code; `None` if the output is too long."""
    async with asyncio.TaskGroup() as tasks:
        feeding = tasks.create_task(_feed(process, payload), name="hook input")
        ended = tasks.create_task(process.wait(), name="hook end")
        flooded = tasks.create_task(outputs.is_too_long.wait(), name="hook output")
        await asyncio.wait({ended, flooded}, return_when=asyncio.FIRST_COMPLETED)
        result = ended.result() if ended.done() and not flooded.done() else None
        for task in (feeding, ended, flooded):
            task.cancel()
    return result


async def _feed(process: Process, payload: bytes) -> None:
    # A hook need not read its input.
    with suppress(OSError):
        await process.write(payload)
    process.close_stdin()


def _shell(
    thread: ThreadState, hook: Hook, command: str
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the arguments and the environment of the shell that runs a hook.

    It reads no start-up files that a sandboxed command can have written, and those that it reads
    cannot put such a command's folder before the trusted ones.
    """
    env = {**hook_environment(thread), **hook.variables}
    first = os.pathsep.join(_trusted_folders(thread, env.get("PATH", "")))
    if first:
        command = f'PATH={shlex.quote(first)}"${{PATH:+:$PATH}}"\n{command}'
    argv = shell_argv(command, is_login=thread.settings.shell.allows_login)
    if may_read_startup_files(thread, env):
        return argv, env
    return without_startup_files(argv, env)


def hook_environment(thread: ThreadState) -> Mapping[str, str]:
    """Return the environment of hooks: that of commands, with trusted folders of `PATH` first.

    Hooks run outside the sandbox, so the names in them should not resolve to programs that
    commands wrote.
    """
    env = environment(thread.settings.shell.environment, thread.id)
    if (path := env.get("PATH")) is None:
        return env
    # A relative folder would be looked for in the workspace.
    absolute = [folder for folder in path.split(os.pathsep) if folder.startswith("/")]
    folders = dict.fromkeys([*_trusted_folders(thread, path), *absolute])
    return {**env, "PATH": os.pathsep.join(folders)}


def _trusted_folders(thread: ThreadState, path: str) -> list[str]:
    boundary, settings = thread.services.boundary, thread.settings
    confinement = boundary.confine(settings.sandbox, settings.cwd)
    return [*filter(None, boundary.trusted_path(path, confinement).split(os.pathsep))]
