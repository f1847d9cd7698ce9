"""The warm servers of an adapter, shared by its evaluations."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Final, Protocol

from treadle.client._runtime.find import find_command
from treadle.client.approvals import ApprovalPolicy, approve_all, deny_all
from treadle.client.async_client import AsyncClient
from treadle.client.connectors import Connector, connector_of
from treadle.client.errors import ClientError, Disconnected, RequestRefused, RequestTimeout
from treadle.client.events import TokenUsageUpdated
from treadle.client.tools import Tool
from treadle.protocol.client_requests import SKILLS_EXTRA_ROOTS_SET
from treadle.protocol.input import UserInput
from treadle.protocol.skill import SkillsExtraRootsSetParams
from treadle.protocol.thread import Thread
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.support.text.terminal import prose
from treadle.transport.base import Transport
from treadle.transport.subprocess import SubprocessTransport, spawn
from treadle.wink.auth import IN_MEMORY, sign_in
from treadle.wink.config import ApiKeyAuth, CodexAppServerClientConfig
from treadle.wink.skills import SkillFolder, SkillSet

_LENIENT: Final = ("never", "untrusted", "on-failure")


class EvaluationHandle(Protocol):
    """The part of an evaluation that a server handle uses."""

    tools: list[Tool]

    def note_agent_usage(self, event: TokenUsageUpdated) -> None:
        """Record a usage report of a sub-agent."""
        ...


def _implied_approvals(config: CodexAppServerClientConfig) -> ApprovalPolicy:
    return approve_all if config.approval_policy in _LENIENT else deny_all


class ServerHandle:
    """One server, its client, and the evaluations that it serves."""

    def __init__(self, config: CodexAppServerClientConfig, skills: SkillSet) -> None:
        self._config = config
        self._skills = skills
        self._folder: SkillFolder | None = None
        self._transport: SubprocessTransport | None = None
        self._printed = ""
        self.client = self._make_client({})
        self.tasks = BackgroundTasks()
        self.evaluations: dict[str, EvaluationHandle] = {}
        """The running evaluations, by the ids of their threads."""
        self.skill_inputs: list[UserInput] = []
        """The skills to pass as input, because the server cannot find them."""
        self.changes_others = False
        """Whether the skills are visible to other users of a server that was not started here."""
        self.users = 0
        self.is_fresh = True
        """Whether the server has not been used yet."""
        self.is_retired = False
        self.is_closing = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_usable(self) -> bool:
        """Whether a new evaluation may use the server."""
        has_ended = self._transport is not None and self._transport.exit_code is not None
        return not self.is_retired and not has_ended

    @property
    def stderr(self) -> str:
        """The end of the server's stderr."""
        return "" if self._transport is None else self._transport.stderr_tail

    # -- lifecycle

    async def open(self) -> None:
        """Start the server, and settle `ready` with the outcome."""
        try:
            await self._open()
        except asyncio.CancelledError:
            self._fail(Disconnected("the adapter is closed"))
            raise
        except Exception as error:  # noqa: BLE001 - raised where `ready` is awaited
            self._fail(error)
        else:
            self.ready.set_result(None)

    def _fail(self, error: Exception) -> None:
        self.is_retired = True
        self.ready.set_exception(error)
        self.ready.exception()  # marks it as retrieved: the waiter may be gone

    async def _open(self) -> None:
        await self._connect()
        if self._skills:
            self._folder = await asyncio.to_thread(self._skills.install)
            await self._show(self._folder)
        if self._config.auth_mode is not None:
            await sign_in(self.client, self._config.auth_mode)

    async def _connect(self) -> None:
        seconds = self._config.startup_timeout_s
        failures: list[Exception] = []
        connecting = self.tasks.spawn(_collect_failure(self.client.connect(), failures), "connect")
        await asyncio.wait({connecting}, timeout=seconds)
        if not connecting.done():
            self.kill()
            await asyncio.wait({connecting}, timeout=self._config.interrupt_grace_s)
            raise RequestTimeout("initialize", seconds)
        if failures:
            raise failures[0]
        self.client.on("thread:started", self._note_thread)
        self.client.on("thread:tokenUsage:updated", self._count)

    async def _show(self, folder: SkillFolder) -> None:
        """Configure the server with the skill folder.

        A server that cannot read further folders gets the skills as input; if it was started here,
        it is restarted with a home that contains them. The agent's commands see that home as well,
        so this is the second choice.
        """
        params = SkillsExtraRootsSetParams([str(folder.root)])
        try:
            await self.client.request(SKILLS_EXTRA_ROOTS_SET, params)
            self.changes_others = self._transport is None
            return
        except RequestRefused:
            self.skill_inputs = folder.inputs()
        if self._transport is not None:
            await self.client.close()
            self.client = self._make_client(folder.environment(self._environ()))
            await self._connect()

    def kill(self) -> None:
        """Kill the server and its process group."""
        self.is_retired = True
        if self._transport is not None and self._transport.exit_code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Disconnect; a server that was started here ends."""
        self.is_retired = True
        await self.tasks.close()
        if self.changes_others:
            with contextlib.suppress(ClientError):
                await self.client.request(SKILLS_EXTRA_ROOTS_SET, SkillsExtraRootsSetParams([]))
        await self.client.close()
        self.print_stderr()
        if self._folder is not None:
            self._folder.remove()

    def print_stderr(self) -> None:
        """Print the server's stderr since the last call, unless it is suppressed."""
        if self._config.suppress_stderr:
            return
        stderr = self.stderr
        new = stderr.removeprefix(self._printed) if self._printed else stderr
        self._printed = stderr
        if new.strip():
            sys.stderr.write(prose(new.strip("\n")) + "\n")

    # -- evaluations

    def register(self, thread_id: str, evaluation: EvaluationHandle) -> None:
        """Assign a thread to an evaluation."""
        self.evaluations[thread_id] = evaluation

    def release_threads(self, evaluation: EvaluationHandle, *, keep: str | None) -> None:
        """Forget the threads of an evaluation, and unsubscribe from all but `keep`."""
        for thread_id in [each for each, owner in self.evaluations.items() if owner is evaluation]:
            del self.evaluations[thread_id]
            self.client.core.tools.unbind(thread_id)
            if thread_id != keep and not self.is_retired:
                self.tasks.spawn(self._unload(thread_id), f"unload {thread_id}")

    async def _unload(self, thread_id: str) -> None:
        with contextlib.suppress(ClientError):
            await self.client.thread(thread_id).unsubscribe()

    def adopt(self, thread_id: str, evaluation: EvaluationHandle) -> None:
        """Assign a sub-agent's thread to its parent's evaluation, with the same tools."""
        if thread_id not in self.evaluations:
            self.evaluations[thread_id] = evaluation
            self.client.core.tools.bind(thread_id, evaluation.tools)

    def _note_thread(self, thread: Thread) -> None:
        evaluation = self.evaluations.get(thread.parent_thread_id or _spawner(thread) or "")
        if evaluation is not None:
            self.adopt(thread.id, evaluation)

    def _count(self, event: TokenUsageUpdated) -> None:
        evaluation = self.evaluations.get(event.thread_id)
        if evaluation is not None:
            evaluation.note_agent_usage(event)

    # -- connection

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **(self._config.env or {})}

    def _make_client(self, more: dict[str, str]) -> AsyncClient:
        config = self._config
        return AsyncClient(
            self._connector(more),
            client_name=config.client_name,
            client_version=config.client_version,
            client_title="WINK Agent",
            approvals=config.approvals or _implied_approvals(config),
            request_timeout=config.request_timeout_s,
            turn_idle_timeout=None,
        )

    def _connector(self, more: dict[str, str]) -> Connector:
        config = self._config
        if isinstance(config.codex_bin, str) and "://" in config.codex_bin:
            return connector_of(config.codex_bin)
        environ = {**self._environ(), **more}

        async def dial(_tasks: BackgroundTasks) -> Transport:
            program = config.codex_bin
            cwd = config.cwd or str(Path.cwd())
            if isinstance(program, str):
                command = find_command(program, environ, workspace=cwd)
            else:
                command = list(program)
            if isinstance(config.auth_mode, ApiKeyAuth):
                command += IN_MEMORY
            self._transport = spawn(command, cwd=cwd, env=environ)
            return self._transport

        return Connector(dial, can_return=False)


async def _collect_failure(work: Coroutine[None, None, object], failures: list[Exception]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 - raised by the waiter
        failures.append(error)


def _spawner(thread: Thread) -> str | None:
    """Return the parent of a sub-agent's thread, as older servers report it."""
    agent = getattr(thread.source, "sub_agent", None)
    return getattr(getattr(agent, "thread_spawn", None), "parent_thread_id", None)


class Servers:
    """The servers of one adapter, one for each set of skills; runs on the adapter's loop."""

    def __init__(self, config: CodexAppServerClientConfig) -> None:
        self._config = config
        self._servers: dict[str, ServerHandle] = {}
        self._tasks = BackgroundTasks()
        self._closing: set[asyncio.Task[None]] = set()

    async def acquire(self, skills: SkillSet) -> ServerHandle:
        """Return a ready server, which the caller must release.

        Raises:
            ClientError: the server cannot be started, or refuses the login.
        """
        server = self._servers.get(skills.key)
        if server is None or not server.is_usable:
            server = self._servers[skills.key] = ServerHandle(self._config, skills)
            self._tasks.spawn(server.open(), "open server")
        server.users += 1
        try:
            await asyncio.shield(server.ready)
        except BaseException:
            self.release(server)
            raise
        return server

    def release(self, server: ServerHandle) -> None:
        """Release a server; one that cannot be reused ends with its last user."""
        server.users -= 1
        server.is_fresh = False
        server.print_stderr()
        is_kept = server.is_usable and self._config.keep_warm and not server.changes_others
        if not server.users and not is_kept:
            self._close(server)

    async def close(self) -> None:
        """End all servers."""
        for server in list(self._servers.values()):
            self._close(server)
        if self._closing:
            await asyncio.wait(self._closing)
        await self._tasks.close()

    def _close(self, server: ServerHandle) -> None:
        if server.is_closing:
            return
        server.is_closing = server.is_retired = True
        for key in [key for key, each in self._servers.items() if each is server]:
            del self._servers[key]
        task = self._tasks.spawn(server.close(), "close server")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
