"""Servers that stay warm: each is shared by the evaluations of one adapter."""

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
    """An evaluation as the server's threads know it."""

    tools: list[Tool]

    def note_usage(self, event: TokenUsageUpdated) -> None:
        """Take a report of tokens."""
        ...


def _implied(config: CodexAppServerClientConfig) -> ApprovalPolicy:
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
        self.guests: dict[str, EvaluationHandle] = {}
        """The evaluations that run, by the threads that work for them."""
        self.skill_inputs: list[UserInput] = []
        """The skills that a prompt must name itself, as the server does not find them."""
        self.users = 0
        self.is_fresh = True
        """Whether nobody has used it yet."""
        self.is_retired = False
        self.is_closing = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_usable(self) -> bool:
        """Whether a new evaluation may come."""
        has_ended = self._transport is not None and self._transport.exit_code is not None
        return not self.is_retired and not has_ended

    @property
    def stderr(self) -> str:
        """What the server said on stderr lately."""
        return "" if self._transport is None else self._transport.stderr_tail

    # -- its life

    async def open(self) -> None:
        """Start the server, and settle `ready` with the outcome."""
        try:
            await self._open()
        except asyncio.CancelledError:
            self._fail(Disconnected("the adapter is closed"))
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            self._fail(error)
        else:
            self.ready.set_result(None)

    def _fail(self, error: Exception) -> None:
        self.is_retired = True
        self.ready.set_exception(error)
        self.ready.exception()  # whoever waited may be gone

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
        connecting = self.tasks.spawn(_kept(self.client.connect(), failures), "connect")
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
        """Tell the server where the skills are.

        To one that cannot look there they are given as input; and if it was started here it is
        started anew, with a home that has them. The agent's commands see that home as well, so
        this is the second choice.
        """
        params = SkillsExtraRootsSetParams([str(folder.root)])
        try:
            await self.client.request(SKILLS_EXTRA_ROOTS_SET, params)
            return
        except RequestRefused:
            self.skill_inputs = folder.inputs()
        if self._transport is not None:
            await self.client.close()
            self.client = self._make_client(folder.environment(self._environ()))
            await self._connect()

    def kill(self) -> None:
        """End the server and all of its group at once."""
        self.is_retired = True
        if self._transport is not None and self._transport.exit_code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Hang up; a server that was started here ends."""
        self.is_retired = True
        await self.tasks.close()
        await self.client.close()
        self.print_stderr()
        if self._folder is not None:
            self._folder.remove()

    def print_stderr(self) -> None:
        """Show what the server said since the last time, if that is wanted."""
        if self._config.suppress_stderr:
            return
        said = self.stderr
        new = said.removeprefix(self._printed) if self._printed else said
        self._printed = said
        if new.strip():
            sys.stderr.write(prose(new.strip("\n")) + "\n")

    # -- whom it serves

    def enrol(self, thread_id: str, guest: EvaluationHandle) -> None:
        """Let a thread work for an evaluation."""
        self.guests[thread_id] = guest

    def dismiss(self, guest: EvaluationHandle, *, keeps: str | None) -> None:
        """Forget the threads of an evaluation, and have the server unload all but one."""
        for thread_id in [each for each, owner in self.guests.items() if owner is guest]:
            del self.guests[thread_id]
            self.client.core.tools.unbind(thread_id)
            if thread_id != keeps and not self.is_retired:
                self.tasks.spawn(self._unload(thread_id), f"unload {thread_id}")

    async def _unload(self, thread_id: str) -> None:
        with contextlib.suppress(ClientError):
            await self.client.thread(thread_id).unsubscribe()

    def adopt(self, thread_id: str, guest: EvaluationHandle) -> None:
        """Let a sub-agent's thread work for whoever its parent works for, with the same tools."""
        if thread_id not in self.guests:
            self.guests[thread_id] = guest
            self.client.core.tools.bind(thread_id, guest.tools)

    def _note_thread(self, thread: Thread) -> None:
        guest = self.guests.get(thread.parent_thread_id or _spawner(thread) or "")
        if guest is not None:
            self.adopt(thread.id, guest)

    def _count(self, event: TokenUsageUpdated) -> None:
        guest = self.guests.get(event.thread_id)
        if guest is not None:
            guest.note_usage(event)

    # -- how it is reached

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **(self._config.env or {})}

    def _make_client(self, more: dict[str, str]) -> AsyncClient:
        config = self._config
        return AsyncClient(
            self._connector(more),
            client_name=config.client_name,
            client_version=config.client_version,
            client_title="WINK Agent",
            approvals=config.approvals or _implied(config),
            request_timeout=config.request_timeout_s,
            turn_silence=None,
        )

    def _connector(self, more: dict[str, str]) -> Connector:
        config = self._config
        if isinstance(config.codex_bin, str) and "://" in config.codex_bin:
            return connector_of(config.codex_bin)
        environ = {**self._environ(), **more}

        async def dial(_tasks: BackgroundTasks) -> Transport:
            given = config.codex_bin
            cwd = config.cwd or str(Path.cwd())
            if isinstance(given, str):
                command = find_command(given, environ, workspace=cwd)
            else:
                command = list(given)
            if isinstance(config.auth_mode, ApiKeyAuth):
                command += IN_MEMORY
            self._transport = spawn(command, cwd=cwd, env=environ)
            return self._transport

        return Connector(dial, can_return=False)


async def _kept(work: Coroutine[None, None, object], failures: list[Exception]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
        failures.append(error)


def _spawner(thread: Thread) -> str | None:
    """The parent of a sub-agent's thread, as older servers tell it."""
    agent = getattr(thread.source, "sub_agent", None)
    return getattr(getattr(agent, "thread_spawn", None), "parent_thread_id", None)


class Servers:
    """The servers of one adapter, one for each set of skills; everything here runs on its loop."""

    def __init__(self, config: CodexAppServerClientConfig) -> None:
        self._config = config
        self._hosts: dict[str, ServerHandle] = {}
        self._tasks = BackgroundTasks()
        self._closing: set[asyncio.Task[None]] = set()

    async def acquire(self, skills: SkillSet) -> ServerHandle:
        """A server that answers; whoever takes it gives it back.

        Raises:
            ClientError: there is none, or it does not let us in.
        """
        host = self._hosts.get(skills.key)
        if host is None or not host.is_usable:
            host = self._hosts[skills.key] = ServerHandle(self._config, skills)
            self._tasks.spawn(host.open(), "open server")
        host.users += 1
        try:
            await asyncio.shield(host.ready)
        except BaseException:
            self.release(host)
            raise
        return host

    def release(self, host: ServerHandle) -> None:
        """Give a server back; one that nobody will want again ends with its last user."""
        host.users -= 1
        host.is_fresh = False
        host.print_stderr()
        if not host.users and (not host.is_usable or not self._config.keep_warm):
            self._close(host)

    async def close(self) -> None:
        """End all of them."""
        for host in list(self._hosts.values()):
            self._close(host)
        if self._closing:
            await asyncio.wait(self._closing)
        await self._tasks.close()

    def _close(self, host: ServerHandle) -> None:
        if host.is_closing:
            return
        host.is_closing = host.is_retired = True
        for key in [key for key, each in self._hosts.items() if each is host]:
            del self._hosts[key]
        task = self._tasks.spawn(host.close(), "close server")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
