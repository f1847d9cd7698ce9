"""Asking at the terminal: each question is shown alone, and takes what is typed after it."""

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

_LOOK_SECONDS: Final = 0.05
_YES: Final = ("y", "yes")
_WORDS: Final[dict[str, FileChangeApprovalDecision]] = {
    "y": "accept",
    "yes": "accept",
    "a": "acceptForSession",
    "always": "acceptForSession",
    "s": "cancel",
    "stop": "cancel",
}


class Terminal:
    """Puts each question to the person at the terminal."""

    def __init__(
        self,
        read: Callable[[], str] | None = None,
        write: Callable[[str], object] | None = None,
    ) -> None:
        self._read = read or _read_line
        self._write = write or _write
        # Clients on several event loops can share a terminal, hence a lock of threads.
        self._taken = threading.Lock()
        self._reading: Future[str] | None = None

    async def command(self, ask: CommandApproval) -> CommandDecision:
        """Show the command and wait for a word."""
        return await self._decide(questions.about_command(ask))

    async def file_change(self, ask: FileChangeApproval) -> FileChangeDecision:
        """Show the edits and wait for a word."""
        return await self._decide(questions.about_files(ask))

    async def permissions(self, ask: PermissionsRequestApprovalParams) -> bool:
        """Show what is wanted and wait for a word."""
        return await self._ask(questions.about_permissions(ask)) in _YES

    async def user_input(self, ask: ToolRequestUserInputParams) -> UserAnswers:
        """Put each question, and take the number of an option or free text."""
        answers: dict[str, str] = {}
        for question in ask.questions:
            labels = [option.label for option in question.options or ()]
            said = await self._ask(questions.about_input(question))
            chosen = int(said) if said.isdecimal() else 0
            answers[question.id] = labels[chosen - 1] if 0 < chosen <= len(labels) else said
        return answers

    async def elicitation(self, ask: McpServerElicitationRequestParams) -> ElicitationDecision:
        """Show what an MCP server wants and wait for a word."""
        word = await self._decide(questions.about_elicitation(ask))
        if word == "accept":
            return questions.can_accept(ask)
        return "cancel" if word == "cancel" else False

    async def _decide(self, question: questions.Prompt) -> FileChangeApprovalDecision | None:
        word = _WORDS.get(await self._ask(question))
        is_offered = word != "acceptForSession" or any("[a]" in each for each in question.answers)
        return word if is_offered else None

    async def _ask(self, question: questions.Prompt) -> str:
        # Two questions at once would take each other's answers.
        while not self._taken.acquire(blocking=False):  # noqa: ASYNC110 - held by another loop
            await asyncio.sleep(_LOOK_SECONDS)
        try:
            is_whole = False
            while True:
                said = await self._exchange(question, is_whole=is_whole)
                if not question.answers:
                    return said
                if is_whole or said.lower() not in ("w", "whole"):
                    return said.lower()
                is_whole = True
        finally:
            self._taken.release()

    async def _exchange(self, question: questions.Prompt, *, is_whole: bool) -> str:
        width = shutil.get_terminal_size().columns
        shown = await asyncio.to_thread(question.shown, width, is_whole=is_whole)
        if question.answers:
            _discard_typed()
        # The read of a question that was withdrawn still waits for a line. This question takes
        # it over; a line that was typed before this question is shown answers nothing.
        if self._reading is not None and self._reading.done():
            self._reading = None
        self._write(shown)
        if self._reading is None:
            self._reading = self._start_reading()
        reading = self._reading
        said = await asyncio.wrap_future(reading)
        self._reading = None
        return said.strip()

    def _start_reading(self) -> Future[str]:
        reading: Future[str] = Future()
        # From here on it cannot be cancelled: a thread that reads cannot be stopped.
        reading.set_running_or_notify_cancel()

        def read() -> None:
            try:
                line = self._read()
            except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
                is_stop = isinstance(error, StopIteration)  # which a future refuses
                reading.set_exception(RuntimeError("StopIteration") if is_stop else error)
            else:
                reading.set_result(line)

        # Not a thread of the loop: the end of the program does not wait for this one.
        threading.Thread(target=read, name="read from the terminal", daemon=True).start()
        return reading


def _read_line() -> str:
    return sys.stdin.readline()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _discard_typed() -> None:
    """Drop what was typed before the question is shown: it was meant for something else."""
    with suppress(ImportError, OSError, ValueError, AttributeError):
        import termios

        if sys.stdin.isatty():
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def terminal_policy(terminal: Terminal) -> ApprovalPolicy:
    """A policy that asks at this terminal."""
    return ApprovalPolicy(
        terminal.command,
        terminal.file_change,
        terminal.permissions,
        terminal.user_input,
        terminal.elicitation,
    )


ask_in_terminal: Final = terminal_policy(Terminal())
"""The person at the terminal decides."""
