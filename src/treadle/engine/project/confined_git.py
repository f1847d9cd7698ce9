"""Runs git for the server itself, in a read-only sandbox without network.

The configuration of a repository names programs that git runs: filters, monitors, the other end
of a fetch. Commands can write a repository, so git gets no more permissions than a read-only
command.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from treadle.protocol.policy import ReadOnlySandboxPolicy
from treadle.sandbox.backends.selection import SandboxUnavailable

if TYPE_CHECKING:
    from treadle.sandbox.boundary import Boundary
    from treadle.sandbox.limits import CommandLimits
    from treadle.sandbox.policy import Confinement
    from treadle.sandbox.sandbox import Sandbox

GIT_SECONDS: Final = 10.0
MAX_ANSWER: Final = 64 * 1024
"""The maximum size of a short output; commit ids and counts are far shorter."""
# No GIT_* variables: they could select another repository.
_KEPT: Final = ("HOME", "TMPDIR", "XDG_CONFIG_HOME")
_SYSTEM: Final = ("/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin")
_FIXED: Final = {
    "LC_ALL": "C",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
_GIT: Final = ("git", "--no-pager", "-c", "core.fsmonitor=false")


class GitUnavailable(Exception):
    """No sandbox works on this machine, and git does not run without one."""


class ConfinedGit:
    """Git in one folder, in the read-only sandbox without network."""

    def __init__(
        self, sandbox: Sandbox, boundary: Boundary, cwd: str, limits: CommandLimits | None = None
    ) -> None:
        self.cwd: Final = cwd
        self._sandbox = sandbox
        self._boundary = boundary
        self._limits = limits

    def in_folder(self, cwd: str) -> ConfinedGit:
        """Return git in another folder."""
        return ConfinedGit(self._sandbox, self._boundary, cwd, self._limits)

    async def ask(self, *arguments: str) -> str | None:
        """Return the output of git as one text; `None` if it fails.

        Raises:
            GitUnavailable: no sandbox works.
            OSError: git or the folder does not exist.
            TimeoutError: git takes too long.
        """
        output = await self.read(*arguments, limit=MAX_ANSWER)
        return None if output is None else output.decode("utf-8", "replace").strip()

    async def read(self, *arguments: str, limit: int) -> bytes | None:
        """Return at most so many bytes of the output of git; `None` if it fails.

        Raises:
            GitUnavailable: no sandbox works.
            OSError: git or the folder does not exist.
            TimeoutError: git takes too long.
        """
        from treadle.sandbox.limits import default_limits
        from treadle.sandbox.process import Process

        confinement = self._boundary.confine(ReadOnlySandboxPolicy(), self.cwd)
        output = bytearray()

        def keep(stream: Literal["stdout", "stderr"], data: bytes) -> None:
            if stream == "stdout":
                output.extend(data[: limit - len(output)])

        try:
            process = await Process.start(
                self._sandbox,
                [*_GIT, *arguments],
                cwd=self.cwd,
                env=self._environment(os.environ, confinement),
                confinement=confinement,
                on_output=keep,
                limits=self._limits or default_limits(),
            )
        except SandboxUnavailable as error:
            raise GitUnavailable(str(error)) from error
        try:
            async with asyncio.timeout(GIT_SECONDS):
                code = await process.wait()
        finally:
            process.kill()
        return bytes(output) if code == 0 else None

    def _environment(self, environ: Mapping[str, str], confinement: Confinement) -> dict[str, str]:
        searched = environ.get("PATH", os.defpath)
        path = self._boundary.trusted_path(searched, confinement, names=["git"])
        # The system's own git comes first.
        folders = sorted(path.split(os.pathsep), key=lambda folder: folder not in _SYSTEM)
        kept = {name: environ[name] for name in _KEPT if name in environ}
        return {**kept, **_FIXED, "PATH": os.pathsep.join(folders) or os.defpath}
