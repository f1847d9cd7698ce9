"""Git snapshots of a workspace, taken through the server and inside its sandbox.

The settings and attributes of a repository name programs that git runs, and commands of the agent
can write a repository. Git therefore runs where these commands run, never as a child of the client.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from treadle.client.async_client import AsyncClient
from treadle.client.errors import ClientError, RequestRefused
from treadle.protocol.client_requests import COMMAND_EXEC
from treadle.protocol.command import CommandExecParams
from treadle.protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
)
from treadle.unattended.report import Snapshot

GIT_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 25.0
"""Timeout of the server's answer; the server kills git before that."""
_GIT: Final = ("git", "--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false")
_HEAD: Final = ("rev-parse", "HEAD")
_CHANGES: Final = ("status", "--porcelain=v1", "--untracked-files=all", "--", ".")
_ENVIRONMENT: Final[dict[str, str | None]] = {
    # Releases of git that do not know this variable ignore it; the option would be an error there.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_DIR": None,
    "GIT_WORK_TREE": None,
    "GIT_INDEX_FILE": None,
}


class WorkspaceGit:
    """Takes snapshots of one workspace; gives up after the first timeout of the server."""

    def __init__(self, client: AsyncClient, cwd: Path, *, is_unconfined: bool) -> None:
        """Take whether the session's commands run without a sandbox as `is_unconfined`."""
        self._client = client
        self._cwd = str(cwd)
        self._is_unconfined = is_unconfined
        self._is_responsive = True

    async def snapshot(self) -> Snapshot:
        """Return the state of the workspace, with `None` where the server cannot determine it."""
        if not self._is_responsive:
            return Snapshot()
        try:
            async with asyncio.timeout(ANSWER_SECONDS), asyncio.TaskGroup() as tasks:
                head = tasks.create_task(self._run(*_HEAD))
                changes = tasks.create_task(self._run(*_CHANGES))
        except TimeoutError:
            self._is_responsive = False
            return Snapshot()
        return Snapshot(head.result(), changes.result())

    async def _run(self, *arguments: str) -> str | None:
        policies: list[SandboxPolicy] = [ReadOnlySandboxPolicy()]
        if self._is_unconfined:
            # A machine without a sandbox: git gets what each command of this session has anyway.
            policies.append(DangerFullAccessSandboxPolicy())
        for policy in policies:
            params = CommandExecParams(
                command=[*_GIT, *arguments],
                cwd=self._cwd,
                env=_ENVIRONMENT,
                sandbox_policy=policy,
                timeout_ms=int(GIT_SECONDS * 1000),
            )
            try:
                # The timeout of the snapshot is shorter and applies first.
                result = await self._client.request(
                    COMMAND_EXEC, params, timeout=2 * ANSWER_SECONDS
                )
            except RequestRefused:
                continue
            except ClientError:
                return None  # the turn itself reports that the server is gone
            return result.stdout.strip() if result.exit_code == 0 else None
        return None
