"""The commands by which the guardian looks for evidence: read-only, without network, and silent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from treadle.engine.terminals.shell import environment, shell_argv
from treadle.engine.tools.registry import (
    Output,
    ToolCall,
    ToolRefused,
    function_tool,
    read_arguments,
)
from treadle.model.base import ModelTool
from treadle.protocol.policy import (
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.sandbox.backends.selection import SandboxUnavailable

if TYPE_CHECKING:
    from treadle.engine.state import ThreadState
    from treadle.engine.turn import ActiveTurn

NAME: Final = "exec_command"
COMMAND_SECONDS: Final = 10.0
MAX_OUTPUT_BYTES: Final = 16 * 1024


class _Arguments(msgspec.Struct):
    cmd: str
    workdir: str | None = None


class ReviewEvidence:
    """Runs the commands of one review; clients do not see them."""

    def __init__(self, thread: ThreadState, turn: ActiveTurn) -> None:
        self._thread = thread
        self._settings = thread.settings_of(turn)

    def tools(self) -> list[ModelTool]:
        """The definitions that the guardian sees; empty if the thread runs no commands."""
        if not self._settings.is_enabled("shell_tool"):
            return []
        properties = {
            "cmd": {"type": "string", "description": "Shell command that only reads."},
            "workdir": {
                "type": "string",
                "description": "Working folder. Defaults to the thread's folder.",
            },
        }
        about = (
            "Run a command to gather evidence. It can write no file and use no network, ends after "
            f"{COMMAND_SECONDS:g} seconds, and returns at most {MAX_OUTPUT_BYTES} bytes."
        )
        return [function_tool(NAME, about, properties, ["cmd"])]

    async def run(self, call: ToolCall) -> Output:
        """Run a command; errors become its output."""
        if call.name != NAME or not self.tools():
            return f"unsupported call: {call.name}"
        try:
            return await self._execute(call, read_arguments(call, _Arguments))
        except (ToolRefused, SandboxUnavailable) as error:
            return str(error)
        except (OSError, ValueError) as error:
            return f"the command could not be started: {error}"

    async def _execute(self, call: ToolCall, arguments: _Arguments) -> str:
        from treadle.sandbox.process import Process

        settings, services = self._settings, self._thread.services
        output = bytearray()

        def keep(_stream: Literal["stdout", "stderr"], data: bytes) -> None:
            output.extend(data[: MAX_OUTPUT_BYTES - len(output)])

        process = await Process.start(
            services.sandbox,
            shell_argv(arguments.cmd, shell=None, is_login=False),
            cwd=str(Path(settings.cwd, arguments.workdir or "")),
            env=environment(
                settings.shell.environment, self._thread.id, call_id=call.id, has_network=False
            ),
            confinement=services.boundary.confine(read_only(settings.sandbox), settings.cwd),
            on_output=keep,
            limits=settings.shell.command_limits(),
        )
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                code = await process.wait()
        except TimeoutError:
            return f"stopped after {COMMAND_SECONDS:g} seconds\n{output.decode(errors='replace')}"
        finally:
            process.kill()
        return f"exit code {code}\n{output.decode(errors='replace')}"


def read_only(policy: SandboxPolicy) -> ReadOnlySandboxPolicy:
    """Return the read-only policy that reads no more than commands of the thread may."""
    if isinstance(policy, ReadOnlySandboxPolicy):
        return ReadOnlySandboxPolicy(access=policy.access)
    if isinstance(policy, WorkspaceWriteSandboxPolicy):
        return ReadOnlySandboxPolicy(access=policy.read_only_access)
    return ReadOnlySandboxPolicy()
