"""Runs of `exec`, ours and the reference's, with the same model on the loopback."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from benchmarks.programs import folder_for_homes
from tests.harness.model_server import ModelServer, Reply, model_server
from tests.harness.threads import configure, environment
from treadle.protocol.base import JsonValue

During: TypeAlias = Callable[[asyncio.subprocess.Process], Coroutine[None, None, None]]
"""What is done to a program while it runs."""
SECONDS = 25
ANYWHERE = "--skip-git-repo-check"
KNOWN = ("-m", "gpt-5.5")
"""A model that both programs know, so that neither warns of it."""
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Ran:
    """What a run left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def events(self) -> list[JsonValue]:
        """The lines of stdout as documents."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def thread_id(self) -> str:
        """The thread that the first event names."""
        first: JsonValue = self.events[0]
        assert first["type"] == "thread.started"
        thread_id: str = first["thread_id"]
        return thread_id


@dataclass
class Bench:
    """A home, a workspace and a model for one program."""

    program: str
    home: Path
    cwd: Path
    model: ModelServer

    async def run(
        self,
        *arguments: str,
        replies: Sequence[Reply] = (),
        given: bytes = b"",
        during: During | None = None,
        **extra: str,
    ) -> Ran:
        """Run `exec` with these arguments to its end."""
        self.model.plays(*replies)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(self.program, "exec", *arguments),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=self.cwd,
            env=self.environ(**extra),
        )
        try:
            async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
                if during is not None:
                    tasks.create_task(during(process))
                stdout, stderr = await process.communicate(given)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Ran(process.returncode, stdout.decode(), stderr.decode())

    def environ(self, **extra: str) -> dict[str, str]:
        """What the program sees, and nothing of this machine's user."""
        return {**environment(self.home), **extra}


@asynccontextmanager
async def bench(program: str, folder: Path, more: str = "") -> AsyncIterator[Bench]:
    """Set up a program with its own home, in an empty workspace below a folder."""
    cwd = folder / "workspace"
    shutil.rmtree(cwd, ignore_errors=True)
    cwd.mkdir(parents=True)
    with TemporaryDirectory(dir=folder_for_homes(), prefix="home-") as home:
        async with model_server() as model:
            configure(Path(home), model, more)
            yield Bench(program, Path(home), cwd, model)


def still(value: JsonValue) -> JsonValue:
    """A document without the ids of the day."""
    if isinstance(value, dict):
        return {name: still(each) for name, each in value.items()}
    if isinstance(value, list):
        return [still(each) for each in value]
    return _ID.sub("<id>", value) if isinstance(value, str) else value
