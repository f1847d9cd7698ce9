"""The options of an unattended session, and its client with a tap on the connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from treadle.client._methods.handlers import OnTokenRefresh
from treadle.client._runtime.callbacks import call
from treadle.client._runtime.find import find_command
from treadle.client.approvals import ApprovalPolicy, OnElicitation, OnUserInput
from treadle.client.async_client import AsyncClient
from treadle.client.connectors import Connector, Where, connector_of
from treadle.client.errors import RequestTimeout
from treadle.client.options import ThreadOptions, TurnOptions
from treadle.client.tools import Tool, ToolError, ToolLike, make_tool
from treadle.protocol.policy import AskForApproval, SandboxMode
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.transport.base import Transport
from treadle.unattended.answers import Questions
from treadle.unattended.events import OnEvent
from treadle.unattended.tap import Tap
from treadle.unattended.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The configuration of a session; only `cwd` is required."""

    cwd: Path | str
    """The folder that the agent works in."""
    workspace_root: Path | str | None = None
    """If set, `cwd` must be below this folder, with all links resolved."""
    server: Where | None = None
    """A command, a program or a URL, as for `AsyncClient`. Defaults to this package's server."""
    token: str | None = None
    """The bearer token of a WebSocket server."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that a started server gets in addition to this process's environment."""
    hidden_env: Sequence[str] = ()
    """Variables withheld from a started server, such as secrets of tools that run here."""
    merge_stderr: bool = False
    """Whether to read the server's stderr as output lines, which become `malformed` events."""
    resume: str | None = None
    """A thread to resume; a new one is started if the server does not know it."""
    resume_total: Usage | None = None
    """The earlier total of that thread, if known; only usage beyond it counts."""
    title: str | None = None
    """A name for a new thread."""
    model: str | None = None
    approval_policy: AskForApproval | str = "never"
    """With `never`, approval requests are accepted; otherwise they end the turn."""
    sandbox: SandboxMode | str = "workspace-write"
    thread: ThreadOptions = field(default_factory=ThreadOptions)
    """Further fields of `thread/start`."""
    turn: TurnOptions = field(default_factory=TurnOptions)
    """Further fields of every `turn/start`."""
    tools: Sequence[ToolLike] = ()
    """Functions that the model may call; they run here."""
    approvals: ApprovalPolicy | None = None
    """Decides before the rule of `approval_policy`, where it has a decision."""
    questions: Questions = "answer"
    """How to handle questions to the user: canned answer, fail the turn, or `on_question`."""
    on_question: OnUserInput | None = None
    on_elicitation: OnElicitation | None = None
    on_token_refresh: OnTokenRefresh | None = None
    on_event: OnEvent | None = None
    """Called for every event, in order."""
    read_seconds: float = 30.0
    """Timeout of each request to the server."""
    stall_seconds: float | None = 300.0
    """Idle timeout of a turn; it pauses while a server request is open."""
    turn_seconds: float | None = None
    """Maximum duration of a turn."""
    tool_seconds: float | None = 300.0
    """Timeout of each tool call."""
    max_tokens: int | None = None
    """Maximum number of tokens for the whole session."""
    uses_git: bool = True
    """Whether to ask git what a turn changed."""
    client_name: str = "treadle-unattended"

    @property
    def is_process(self) -> bool:
        """Whether the session starts the server, and so ends it too."""
        where = self.server
        if isinstance(where, str):
            return "://" not in where
        if isinstance(where, Path):
            return where.is_file()
        return where is None or isinstance(where, Sequence)


_MERGED: Final = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh"]


class SessionClient(AsyncClient):
    """An `AsyncClient` with a tap on its connection."""

    def __init__(self, options: SessionOptions, cwd: str, tap: Tap) -> None:
        super().__init__(
            tap.on(_bounded(_connector(options, cwd), options.read_seconds)),
            cwd=cwd,
            client_name=options.client_name,
            model=options.model,
            approval_policy=options.approval_policy,
            sandbox=options.sandbox,
            request_timeout=options.read_seconds,
            turn_idle_timeout=None,
        )


def _connector(options: SessionOptions, cwd: str) -> Connector:
    where = options.server
    if not options.is_process:
        return connector_of(where, token=options.token)
    program = str(where.absolute()) if isinstance(where, Path) else None
    hidden = frozenset(options.hidden_env)
    environ = {k: v for k, v in {**os.environ, **options.env}.items() if k not in hidden}

    async def dial(_tasks: BackgroundTasks) -> Transport:
        from treadle.transport.subprocess import rooted, spawn

        if isinstance(where, Sequence) and not isinstance(where, str):
            command = list(where)
        else:
            name = where if isinstance(where, str) else None
            command = find_command(program or name, environ, workspace=cwd)
        if options.merge_stderr:
            command = [*_MERGED, *rooted(command, cwd=cwd, env=environ)]
        return spawn(command, cwd=cwd, env=environ)

    return Connector(dial, can_return=False)


def _bounded(connector: Connector, seconds: float) -> Connector:
    """Add a timeout: a host may accept the connection and never answer."""

    async def dial(tasks: BackgroundTasks) -> Transport:
        try:
            async with asyncio.timeout(seconds):
                return await connector.dial(tasks)
        except TimeoutError:
            raise RequestTimeout("connect", seconds) from None

    return replace(connector, dial=dial)


def timed_tools(tools: Sequence[ToolLike], seconds: float | None) -> list[Tool]:
    """Return the tools of a session with a timeout, which the model sees as a tool error."""
    prepared = [make_tool(each) for each in tools]
    if seconds is None:
        return prepared
    return [replace(each, function=_timed(each.name, each.function, seconds)) for each in prepared]


def _timed(name: str, function: Callable[..., object], seconds: float) -> Callable[..., object]:
    async def run(*args: object, **kwargs: object) -> object:
        try:
            async with asyncio.timeout(seconds):
                return await call(function, *args, **kwargs)
        except TimeoutError:
            raise ToolError(f"the tool {name!r} did not answer within {seconds:g} s") from None

    return run
