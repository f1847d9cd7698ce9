"""What `treadle exec` prints for people: the progress on stderr, the last message on stdout."""

from __future__ import annotations

import os
import sys
from typing import Final

import treadle
from treadle.cli.exec.output import ExecOutput, Opened, show
from treadle.client.events import ItemCompleted, ItemStarted, TurnPlanUpdated
from treadle.protocol.error import TurnError
from treadle.protocol.item import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    EnteredReviewModeThreadItem,
    FileChangeThreadItem,
    McpToolCallThreadItem,
    ReasoningThreadItem,
    WebSearchThreadItem,
)
from treadle.protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.protocol.turn import Turn
from treadle.protocol.usage import TokenUsageBreakdown
from treadle.support.text.terminal import one_line, prose

_RULE: Final = "--------"
_STEPS: Final = {"completed": "✓", "inProgress": "→"}
_STYLES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "pink": 35, "cyan": 36}
_LINES: Final = 20


class TextOutput(ExecOutput):
    """Prints what happens, in the layout of `codex exec`."""

    def __init__(self, color: str | None, *, shows_reasoning: bool = True) -> None:
        super().__init__()
        self._is_colored = _is_colored(color)
        self._shows_reasoning = shows_reasoning
        self._has_shown: str | None = None

    def opened(self, opened: Opened) -> None:
        """Show the settings and the prompt."""
        session = opened.session
        show(f"Treadle v{treadle.__version__}", _RULE)
        for name, value in (
            ("workdir", session.cwd),
            ("model", session.model),
            ("provider", session.model_provider),
            ("approval", session.approval_policy),
            ("sandbox", _sandbox(session.sandbox)),
            ("reasoning effort", session.reasoning_effort or "none"),
            ("reasoning summaries", opened.summary),
            ("session id", session.thread.id),
        ):
            show(f"{self._as(f'{name}:', 'bold')} {one_line(str(value))}")
        show(_RULE)
        if opened.prompt:
            show(self._as("user", "cyan"), prose(opened.prompt))

    def turn_started(self) -> None:
        """Nothing: the prompt was shown."""

    def item_started(self, event: ItemStarted) -> None:
        """Show what takes its time."""
        match event.item:
            case CommandExecutionThreadItem(command=command, cwd=cwd):
                show(self._as("exec", "pink"), f"{self._as(command, 'bold')} in {one_line(cwd)}")
            case FileChangeThreadItem():
                show(self._as("apply patch", "pink"))
            case McpToolCallThreadItem(server=server, tool=tool):
                show(f"{self._as('mcp:', 'bold')} {one_line(server)}/{one_line(tool)} started")
            case EnteredReviewModeThreadItem(review=review):
                show(self._as("user", "cyan"), prose(review))
            case _:
                pass

    def item_completed(self, event: ItemCompleted) -> None:
        """Show what came of it."""
        match event.item:
            case AgentMessageThreadItem(text=text):
                show(self._as("codex", "pink"), prose(text))
                self._has_shown = text
            case ReasoningThreadItem(summary=summary) if summary and self._shows_reasoning:
                show(self._as("\n".join(summary), "dim"))
            case CommandExecutionThreadItem() as item:
                self._command(item)
            case FileChangeThreadItem(status=status, changes=changes):
                show(f"patch: {status}", *(one_line(each.path) for each in changes))
            case McpToolCallThreadItem(server=server, tool=tool, status=status):
                show(f"{self._as('mcp:', 'bold')} {one_line(server)}/{one_line(tool)} ({status})")
            case WebSearchThreadItem(query=query):
                show(f"web search: {one_line(query)}")
            case _:
                pass

    def _command(self, item: CommandExecutionThreadItem) -> None:
        took = f"in {item.duration_ms or 0}ms:"
        if item.exit_code == 0:
            show(self._as(f" succeeded {took}", "green"))
        elif item.exit_code is None:
            show(self._as(f" {item.status} {took}", "red"))
        else:
            show(self._as(f" exited {item.exit_code} {took}", "red"))
        lines = (item.aggregated_output or "").splitlines()
        if lines:
            shown = map(prose, lines[:_LINES])
            show(*shown, *(["..."] if len(lines) > _LINES else []), "")

    def plan_updated(self, event: TurnPlanUpdated) -> None:
        """Show the steps and how far they are."""
        if event.explanation:
            show(self._as(event.explanation, "dim"))
        show(*(f"  {_STEPS.get(each.status, '•')} {one_line(each.step)}" for each in event.plan))

    def diff_updated(self, diff: str) -> None:
        """Show the edits."""
        if diff:
            show(prose(diff))

    def warned(self, words: str) -> None:
        """Show a warning."""
        show(f"{self._as('warning:', 'yellow')} {prose(words)}")

    def error_reported(self, error: TurnError) -> None:
        """Show an error."""
        show(f"{self._as('ERROR:', 'red')} {prose(error.message)}")

    def turn_ended(self, turn: Turn, usage: TokenUsageBreakdown) -> None:
        """Show what it cost, or that it was stopped."""
        if turn.status == "interrupted":
            show(self._as("turn interrupted", "dim"))
        elif turn.status == "completed" and usage.total_tokens:
            spent = usage.input_tokens - usage.cached_input_tokens + usage.output_tokens
            show(self._as("tokens used", "dim"), f"{spent:,}")

    def final_message(self, text: str | None) -> None:
        """Print the agent's last word for the next program, unless a person has just read it."""
        is_read = text == self._has_shown and _is_terminal(sys.stdout) and _is_terminal(sys.stderr)
        if text and not is_read:
            # The next program gets every byte; a terminal would obey some of them.
            shown = prose(text) if _is_terminal(sys.stdout) else text
            self.write(f"{shown}\n".encode())

    def _as(self, words: str, style: str) -> str:
        """Words in a style; they cannot end it, nor set another."""
        shown = prose(words)
        return f"\x1b[{_STYLES[style]}m{shown}\x1b[0m" if self._is_colored else shown


def _sandbox(policy: SandboxPolicy) -> str:
    match policy:
        case DangerFullAccessSandboxPolicy():
            return "danger-full-access"
        case ReadOnlySandboxPolicy():
            return "read-only"
        case WorkspaceWriteSandboxPolicy():
            places = ["workdir"]
            places += [] if policy.exclude_slash_tmp else ["/tmp"]  # noqa: S108 - named, not used
            places += [] if policy.exclude_tmpdir_env_var else ["$TMPDIR"]
            reach = " (network access enabled)" if policy.network_access else ""
            return f"workspace-write [{', '.join([*places, *policy.writable_roots])}]{reach}"
        case _:
            return "external-sandbox"


def _is_colored(color: str | None) -> bool:
    if color in ("always", "never"):
        return color == "always"
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in (None, "dumb")
    return not is_plain and _is_terminal(sys.stderr)


def _is_terminal(stream: object) -> bool:
    is_terminal = getattr(stream, "isatty", None)
    return is_terminal is not None and bool(is_terminal())
