"""The text output of `treadle exec`: progress on stderr, the last message on stdout."""

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
_MAX_LINES: Final = 20


class TextOutput(ExecOutput):
    """Prints the progress in the layout of `codex exec`."""

    def __init__(self, color: str | None, *, shows_reasoning: bool = True) -> None:
        super().__init__()
        self._is_colored = _is_colored(color)
        self._shows_reasoning = shows_reasoning
        self._last_shown: str | None = None

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
            show(f"{self._styled(f'{name}:', 'bold')} {one_line(str(value))}")
        show(_RULE)
        if opened.prompt:
            show(self._styled("user", "cyan"), prose(opened.prompt))

    def turn_started(self) -> None:
        """Show nothing: the prompt was shown."""

    def item_started(self, event: ItemStarted) -> None:
        """Show the start of commands, edits, tool calls and reviews."""
        match event.item:
            case CommandExecutionThreadItem(command=command, cwd=cwd):
                show(
                    self._styled("exec", "pink"),
                    f"{self._styled(command, 'bold')} in {one_line(cwd)}",
                )
            case FileChangeThreadItem():
                show(self._styled("apply patch", "pink"))
            case McpToolCallThreadItem(server=server, tool=tool):
                show(f"{self._styled('mcp:', 'bold')} {one_line(server)}/{one_line(tool)} started")
            case EnteredReviewModeThreadItem(review=review):
                show(self._styled("user", "cyan"), prose(review))
            case _:
                pass

    def item_completed(self, event: ItemCompleted) -> None:
        """Show messages and results."""
        match event.item:
            case AgentMessageThreadItem(text=text):
                show(self._styled("codex", "pink"), prose(text))
                self._last_shown = text
            case ReasoningThreadItem(summary=summary) if summary and self._shows_reasoning:
                show(self._styled("\n".join(summary), "dim"))
            case CommandExecutionThreadItem() as item:
                self._command(item)
            case FileChangeThreadItem(status=status, changes=changes):
                show(f"patch: {status}", *(one_line(each.path) for each in changes))
            case McpToolCallThreadItem(server=server, tool=tool, status=status):
                show(
                    f"{self._styled('mcp:', 'bold')} {one_line(server)}/{one_line(tool)} ({status})"
                )
            case WebSearchThreadItem(query=query):
                show(f"web search: {one_line(query)}")
            case _:
                pass

    def _command(self, item: CommandExecutionThreadItem) -> None:
        duration = f"in {item.duration_ms or 0}ms:"
        if item.exit_code == 0:
            show(self._styled(f" succeeded {duration}", "green"))
        elif item.exit_code is None:
            show(self._styled(f" {item.status} {duration}", "red"))
        else:
            show(self._styled(f" exited {item.exit_code} {duration}", "red"))
        lines = (item.aggregated_output or "").splitlines()
        if lines:
            visible = map(prose, lines[:_MAX_LINES])
            show(*visible, *(["..."] if len(lines) > _MAX_LINES else []), "")

    def plan_updated(self, event: TurnPlanUpdated) -> None:
        """Show the steps and their status."""
        if event.explanation:
            show(self._styled(event.explanation, "dim"))
        show(*(f"  {_STEPS.get(each.status, '•')} {one_line(each.step)}" for each in event.plan))

    def diff_updated(self, diff: str) -> None:
        """Show the edits."""
        if diff:
            show(prose(diff))

    def warned(self, text: str) -> None:
        """Show a warning."""
        show(f"{self._styled('warning:', 'yellow')} {prose(text)}")

    def error_reported(self, error: TurnError) -> None:
        """Show an error."""
        show(f"{self._styled('ERROR:', 'red')} {prose(error.message)}")

    def turn_ended(self, turn: Turn, usage: TokenUsageBreakdown) -> None:
        """Show the usage, or that the turn was interrupted."""
        if turn.status == "interrupted":
            show(self._styled("turn interrupted", "dim"))
        elif turn.status == "completed" and usage.total_tokens:
            spent = usage.input_tokens - usage.cached_input_tokens + usage.output_tokens
            show(self._styled("tokens used", "dim"), f"{spent:,}")

    def final_message(self, text: str | None) -> None:
        """Print the agent's last message, unless the terminal already shows it."""
        is_read = text == self._last_shown and _is_terminal(sys.stdout) and _is_terminal(sys.stderr)
        if text and not is_read:
            # A pipe gets every byte; a terminal would interpret control characters.
            output = prose(text) if _is_terminal(sys.stdout) else text
            self.write(f"{output}\n".encode())

    def _styled(self, text: str, style: str) -> str:
        """Return text in a style, without control characters that could change it."""
        plain = prose(text)
        return f"\x1b[{_STYLES[style]}m{plain}\x1b[0m" if self._is_colored else plain


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
