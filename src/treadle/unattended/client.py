"""The client of an unattended session: a server of its own choice, and a tap on the line to it."""

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
    """How a session is set up; only the folder must be said."""

    cwd: Path | str
    """The folder that the agent works in."""
    workspace_root: Path | str | None = None
    """If given, the folder must be below this one, with all links resolved."""
    server: Where | None = None
    """As for `AsyncClient`: a command, a program, a URL; this package's own if not given."""
    token: str | None = None
    """The bearer token of a WebSocket server."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What a server that is started gets on top of this process's environment."""
    hidden_env: Sequence[str] = ()
    """Variables that a server that is started does not get: tools run here and keep secrets."""
    merge_stderr: bool = False
    """Whether the server's stderr is read as lines of its output; they are `malformed` events."""
    resume: str | None = None
    """A thread to go on with; a new one is started if the server does not know it."""
    resume_total: Usage | None = None
    """Where that thread stood, if it is known: what it uses beyond that is the session's."""
    title: str | None = None
    """A name for a new thread."""
    model: str | None = None
    approval_policy: AskForApproval | str = "never"
    """With `never`, approvals are given if a server asks all the same; else they end the turn."""
    sandbox: SandboxMode | str = "workspace-write"
    thread: ThreadOptions = field(default_factory=ThreadOptions)
    """Further fields of `thread/start`."""
    turn: TurnOptions = field(default_factory=TurnOptions)
    """Further fields of every `turn/start`."""
    tools: Sequence[ToolLike] = ()
    """Functions that the model may call; they run here."""
    approvals: ApprovalPolicy | None = None
    """Decides in place of the rule of `approval_policy`, where it has a decision."""
    questions: Questions = "answer"
    """What becomes of questions to the user: a standing answer, the turn's end, `on_question`."""
    on_question: OnUserInput | None = None
    on_elicitation: OnElicitation | None = None
    on_token_refresh: OnTokenRefresh | None = None
    on_event: OnEvent | None = None
    """Called for everything that happens, in order."""
    read_seconds: float = 30.0
    """How long the server may take for each answer."""
    stall_seconds: float | None = 300.0
    """How long nothing may be heard of a turn while no question to us is open."""
    turn_seconds: float | None = None
    """How long a turn may take in all."""
    tool_seconds: float | None = 300.0
    """How long a tool may take."""
    max_tokens: int | None = None
    """How many tokens the session may use in all."""
    uses_git: bool = True
    """Whether git is asked what a turn changed."""
    client_name: str = "treadle-unattended"

    @property
    def is_process(self) -> bool:
        """Whether the server is started by the session, and so ends with it."""
        where = self.server
        if isinstance(where, str):
            return "://" not in where
        if isinstance(where, Path):
            return where.is_file()
        return where is None or isinstance(where, Sequence)


_MERGED: Final = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh"]


class SessionClient(AsyncClient):
    """An `AsyncClient` whose line has a tap."""

    def __init__(self, options: SessionOptions, cwd: str, tap: Tap) -> None:
        super().__init__(
            tap.on(_bounded(_connector(options, cwd), options.read_seconds)),
            cwd=cwd,
            client_name=options.client_name,
            model=options.model,
            approval_policy=options.approval_policy,
            sandbox=options.sandbox,
            request_timeout=options.read_seconds,
            turn_silence=None,
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
            named = where if isinstance(where, str) else None
            command = find_command(program or named, environ, workspace=cwd)
        if options.merge_stderr:
            command = [*_MERGED, *rooted(command, cwd=cwd, env=environ)]
        return spawn(command, cwd=cwd, env=environ)

    return Connector(dial, can_return=False)


def _bounded(connector: Connector, seconds: float) -> Connector:
    """The same way, with an end: a host that takes calls and says nothing is not waited for."""

    async def dial(tasks: BackgroundTasks) -> Transport:
        try:
            async with asyncio.timeout(seconds):
                return await connector.dial(tasks)
        except TimeoutError:
            raise RequestTimeout("connect", seconds) from None

    return replace(connector, dial=dial)


def timed_tools(tools: Sequence[ToolLike], seconds: float | None) -> list[Tool]:
    """The tools of a session, each with a deadline: the model is told when one passes it."""
    made = [make_tool(each) for each in tools]
    if seconds is None:
        return made
    return [replace(each, function=_timed(each.name, each.function, seconds)) for each in made]


def _timed(name: str, function: Callable[..., object], seconds: float) -> Callable[..., object]:
    async def run(*args: object, **kwargs: object) -> object:
        try:
            async with asyncio.timeout(seconds):
                return await call(function, *args, **kwargs)
        except TimeoutError:
            raise ToolError(f"the tool {name!r} did not answer within {seconds:g} s") from None

    return run
