"""One command of a turn: its item, its process and its output."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from treadle.engine.approvals.permission import Denied
from treadle.engine.terminals.output_deltas import OutputDeltas
from treadle.engine.terminals.output_file import OutputFile
from treadle.engine.terminals.timeouts import PausableTimeout
from treadle.engine.tools.output import MAX_KEPT_BYTES, OutputBuffer
from treadle.engine.turn import ActiveTurn
from treadle.protocol import notifications as n
from treadle.protocol.delta import CommandExecutionOutputDeltaNotification
from treadle.protocol.item import CommandExecutionStatus, CommandExecutionThreadItem
from treadle.sandbox.policy import UNRESTRICTED, Confinement

if TYPE_CHECKING:
    from treadle.sandbox.limits import CommandLimits
    from treadle.sandbox.network.proxy import EgressProxy
    from treadle.sandbox.process import Process
    from treadle.sandbox.sandbox import Sandbox

_STORE_SECONDS: Final = 5.0
ABORTED: Final = -1
"""The exit code of a command that was killed or could not be started."""


class CommandRun:
    """A command from the start to the completion of its item; it completes once."""

    def __init__(
        self, turn: ActiveTurn, item: CommandExecutionThreadItem, script: str, outputs: Path
    ) -> None:
        self.turn = turn
        self.item = item
        # The command without the shell that runs it.
        self.script = script
        self.process: Process | None = None
        # The confinement of the process while it runs.
        self.confinement = UNRESTRICTED
        self.output = OutputBuffer()
        # Output that the model has not read yet.
        self.unread = OutputBuffer()
        self.exit_code: int | None = None
        self.exited = asyncio.Event()
        self.is_terminal = False
        # A caller decides after the process has ended whether the item is completed.
        self.is_held = False
        # Its call has returned: the model and clients refer to it by its session.
        self.is_background = False
        self.last_used = 0.0
        self.started_at_ms = 0
        self.on_end: Callable[[], None] | None = None
        # Set if the command was killed because the user denied an action of it.
        self.refusal: Denied | None = None
        self.timeout = PausableTimeout()
        self._notes: list[str] = []
        self._is_published = False
        self._is_over = False
        self._began = time.monotonic()
        self._pending: list[str] = []
        # The folder for a file with the whole output, if it exceeds the memory limit.
        self._outputs = outputs
        self._limits: CommandLimits | None = None
        self._file: OutputFile | None = None
        self._deltas = OutputDeltas(lambda: self._file.name if self._file else None)

    @property
    def is_published(self) -> bool:
        """Whether `item/started` is published."""
        return self._is_published

    @property
    def is_over(self) -> bool:
        """Whether the item is completed."""
        return self._is_over

    @property
    def limit_hit(self) -> str | None:
        """Why the process was killed, if it exceeded a limit."""
        return None if self.process is None else self.process.limit_hit

    @property
    def seconds(self) -> float:
        """How long the command has run."""
        return time.monotonic() - self._began

    async def start(
        self,
        sandbox: Sandbox,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        confinement: Confinement,
        size: tuple[int, int] | None = None,
        proxy: EgressProxy | None = None,
        limits: CommandLimits | None = None,
    ) -> Process:
        """Start the process, or a new one after it has ended.

        Raises:
            SandboxUnavailable: it cannot be confined.
            OSError: it cannot be started.
        """
        from treadle.sandbox.process import Process

        self._began = time.monotonic()
        self._limits = limits
        self.confinement = confinement
        self.exit_code = None
        self.exited.clear()
        self.is_terminal = size is not None
        self.process = await Process.start(
            sandbox,
            argv,
            cwd=cwd,
            env=env,
            confinement=confinement,
            on_output=self._on_output,
            size=size,
            proxy=proxy,
            limits=limits,
        )
        return self.process

    def publish_started(self) -> None:
        """Publish `item/started`, once."""
        if not self._is_published:
            self._is_published = True
            self.turn.start_item(self.item, self.current)
            self.started_at_ms = self.turn.open_items[self.item.id].started_at_ms
            # The item may end after its turn, which no longer has the time then.
            self.item = msgspec.structs.replace(self.item, started_at_ms=self.started_at_ms)
            self._flush()

    def current(self) -> CommandExecutionThreadItem:
        """The item in its current state."""
        return msgspec.structs.replace(self.item, aggregated_output=self.output.text() or None)

    def on_exit(self, code: int) -> None:
        """Handle the end of the process; complete the item unless a caller holds it."""
        if not self._is_over:
            self.exit_code = code
            if self.limit_hit is not None:
                self.note(self.limit_hit)
            self._add_notes()
        self.exited.set()
        if not self.is_held:
            self.complete(code)

    async def stored(self) -> None:
        """Wait until all output is in its file, for a limited time: the disk may hang."""
        if self._file is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._file.written(), _STORE_SECONDS)

    def take_unread(self) -> OutputBuffer:
        """Return the output that the model has not read yet, and mark it as read."""
        unread, self.unread = self.unread, OutputBuffer()
        for buffer in (unread, self.unread):
            buffer.set_file(self.output.where)
        return unread

    def release(self) -> None:
        """Let the item complete with the process."""
        self.is_held = False
        if self.exited.is_set() and self.exit_code is not None:
            self.complete(self.exit_code)

    def complete(self, code: int) -> None:
        """Complete the item with an exit code."""
        if not self._is_over:
            self.exit_code = code
        self._end("completed" if code == 0 else "failed", self.output.text(), code)

    def fail(self, text: str) -> None:
        """Complete the item of a command that could not be started."""
        self._end("failed", text, ABORTED)

    def decline(self, status: Literal["declined", "failed"] = "declined") -> None:
        """Complete the item of a command that was not allowed to run."""
        self._end(status)

    def stop(self, code: int = ABORTED) -> None:
        """Kill the command and all its processes, and complete the item with the output so far."""
        if self.process is not None:
            self.process.kill()
            self.complete(code)
        self.exited.set()

    def note(self, text: str) -> None:
        """Add a line after the output of the command."""
        if text not in self._notes:
            self._notes.append(text)

    def refuse(self, refusal: Denied) -> None:
        """Kill the command because the user denied an action of it."""
        if not self._is_over:
            self.refusal = refusal
            self.note(refusal.reason)
            self._add_notes()
            self.stop()

    def abort(self) -> None:
        """Stop the command in any state."""
        if self.process is not None:
            self.stop()
        elif self._is_published:
            self.decline("failed")
        self._is_over = True
        self.exited.set()

    def forget(self) -> None:
        """Stop the command and publish nothing more: its turn was rolled back."""
        self._is_over = True
        if self._file is not None:
            self._file.close()
        self.abort()

    def _end(
        self, status: CommandExecutionStatus, output: str | None = None, code: int | None = None
    ) -> None:
        if self._is_over:
            return
        self.publish_started()
        self._flush(is_last=True)
        if self._file is not None:
            self._file.close()
        self._is_over = True
        self.item = msgspec.structs.replace(
            self.item,
            status=status,
            aggregated_output=output or None,
            exit_code=code,
            duration_ms=None if code is None else round(self.seconds * 1000),
        )
        if self.on_end is not None:
            self.on_end()
        self.turn.complete_item(self.item)

    def _on_output(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        if not self._is_over:
            self._store(data)
        self.output.add(data)
        self.unread.add(data)
        if self._is_over:
            return
        text = self._deltas.add(stream, data, time.monotonic())
        if not text:
            return
        if not self._pending:
            # Output of both streams in one iteration of the event loop is published together.
            asyncio.get_running_loop().call_soon(self._flush)
        self._pending.append(text)

    def _store(self, data: bytes) -> None:
        """Write all output to a file once it exceeds the memory limit."""
        if self._file is None:
            if self._limits is None or self.output.total + len(data) <= MAX_KEPT_BYTES:
                return
            self._file = OutputFile(self._outputs, self.item.id, self._limits)
            self._file.add(self.output.kept())
        self._file.add(data)
        for buffer in (self.output, self.unread):
            buffer.set_file(self._file.name)
        if self._file.is_behind and self.process is not None:
            # The command waits for the disk, so that unwritten output does not fill the memory.
            self.process.pause()
            self._file.on_room(self.process.resume)

    def _add_notes(self) -> None:
        notes, self._notes = self._notes, []
        for text in notes:
            printed = self.output.text()
            start = "\n" if printed and not printed.endswith("\n") else ""
            self._on_output("stderr", f"{start}{text}\n".encode())

    def _flush(self, *, is_last: bool = False) -> None:
        if not self._is_published or self._is_over:
            return
        if is_last:
            self._pending.append(self._deltas.finish())
        delta, self._pending = "".join(self._pending), []
        if delta:
            turn = self.turn
            params = CommandExecutionOutputDeltaNotification(
                delta, self.item.id, turn.thread_id, turn.id
            )
            turn.log.publish(n.ITEM_COMMAND_EXECUTION_OUTPUT_DELTA, params)
