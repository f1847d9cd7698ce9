"""Prompts in a terminal: one at a time, answered only by input typed after it is shown."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from treadle.client.approvals import (
    ApprovalPolicy,
    CommandApproval,
    CommandDecision,
    ElicitationDecision,
    FileChangeApproval,
    FileChangeDecision,
    UserAnswers,
)
from treadle.client.terminal import questions
from treadle.protocol.approval import FileChangeApprovalDecision
from treadle.protocol.elicitation import McpServerElicitationRequestParams
from treadle.protocol.permission import PermissionsRequestApprovalParams
from treadle.protocol.tool import ToolRequestUserInputParams

_POLL_SECONDS: Final = 0.05
_YES: Final = ("y", "yes")
_DECISIONS: Final[dict[str, FileChangeApprovalDecision]] = {
    "y": "accept",
    "yes": "accept",
    "a": "acceptForSession",
    "always": "acceptForSession",
    "s": "cancel",
    "stop": "cancel",
}


class Terminal:
    """Approval handlers that prompt the user in a terminal."""

    def __init__(
        self,
        read: Callable[[], str] | None = None,
        write: Callable[[str], object] | None = None,
    ) -> None:
        self._read = read or _read_line
        self._write = write or _write
        # A thread lock, because clients on several event loops can share a terminal.
        self._lock = threading.Lock()
        self._reading: Future[str] | None = None

    async def command(self, ask: CommandApproval) -> CommandDecision:
        """Show a command and return the user's decision."""
        return await self._decide(questions.about_command(ask))

    async def file_change(self, ask: FileChangeApproval) -> FileChangeDecision:
        """Show file changes and return the user's decision."""
        return await self._decide(questions.about_files(ask))

    async def permissions(self, ask: PermissionsRequestApprovalParams) -> bool:
        """Show the requested permissions and return whether the user grants them."""
        return await self._ask(questions.about_permissions(ask)) in _YES

    async def user_input(self, ask: ToolRequestUserInputParams) -> UserAnswers:
        """Show each question and return the chosen options or free text."""
        answers: dict[str, str] = {}
        for question in ask.questions:
            labels = [option.label for option in question.options or ()]
            answer = await self._ask(questions.about_input(question))
            number = int(answer) if answer.isdecimal() else 0
            answers[question.id] = labels[number - 1] if 0 < number <= len(labels) else answer
        return answers

    async def elicitation(self, ask: McpServerElicitationRequestParams) -> ElicitationDecision:
        """Show an elicitation and return the user's decision."""
        decision = await self._decide(questions.about_elicitation(ask))
        if decision == "accept":
            return questions.can_accept(ask)
        return "cancel" if decision == "cancel" else False

    async def _decide(self, prompt: questions.Prompt) -> FileChangeApprovalDecision | None:
        decision = _DECISIONS.get(await self._ask(prompt))
        is_offered = decision != "acceptForSession" or any("[a]" in each for each in prompt.answers)
        return decision if is_offered else None

    async def _ask(self, prompt: questions.Prompt) -> str:
        # Two prompts at once would take each other's answers.
        while not self._lock.acquire(blocking=False):  # noqa: ASYNC110 - held by another loop
            await asyncio.sleep(_POLL_SECONDS)
        try:
            is_whole = False
            while True:
                answer = await self._exchange(prompt, is_whole=is_whole)
                if not prompt.answers:
                    return answer
                if is_whole or answer.lower() not in ("w", "whole"):
                    return answer.lower()
                is_whole = True
        finally:
            self._lock.release()

    async def _exchange(self, prompt: questions.Prompt, *, is_whole: bool) -> str:
        width = shutil.get_terminal_size().columns
        text = await asyncio.to_thread(prompt.render, width, is_whole=is_whole)
        if prompt.answers:
            _discard_pending_input()
        # The read of a cancelled prompt still waits for a line. This prompt takes it over; a line
        # that was typed before this prompt is shown is discarded.
        if self._reading is not None and self._reading.done():
            self._reading = None
        self._write(text)
        if self._reading is None:
            self._reading = self._start_reading()
        reading = self._reading
        line = await asyncio.wrap_future(reading)
        self._reading = None
        return line.strip()

    def _start_reading(self) -> Future[str]:
        reading: Future[str] = Future()
        # Makes the future uncancellable: a thread that reads cannot be stopped.
        reading.set_running_or_notify_cancel()

        def read() -> None:
            try:
                line = self._read()
            except BaseException as error:  # noqa: BLE001 - raised again in the awaiting task
                is_stop = isinstance(error, StopIteration)  # which a future rejects
                reading.set_exception(RuntimeError("StopIteration") if is_stop else error)
            else:
                reading.set_result(line)

        # A daemon thread, not a thread of the loop: the program does not wait for it at exit.
        threading.Thread(target=read, name="read from the terminal", daemon=True).start()
        return reading


def _read_line() -> str:
    return sys.stdin.readline()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _discard_pending_input() -> None:
    """Discard input that was typed before the prompt is shown: it was not meant as an answer."""
    with suppress(ImportError, OSError, ValueError, AttributeError):
        import termios

        if sys.stdin.isatty():
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def terminal_policy(terminal: Terminal) -> ApprovalPolicy:
    """Return a policy that prompts in a terminal."""
    return ApprovalPolicy(
        terminal.command,
        terminal.file_change,
        terminal.permissions,
        terminal.user_input,
        terminal.elicitation,
    )


ask_in_terminal: Final = terminal_policy(Terminal())
"""Let the user decide in the terminal."""
