"""A process that owns a command, to be killed; run by its path.

Arguments: the backend ("unrestricted" for none), the workspace, the script.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Literal

from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.backends.probe import findings
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.policy import UNRESTRICTED
from treadle.sandbox.process import Process
from treadle.sandbox.protection import Protection
from treadle.sandbox.sandbox import Sandbox


def pass_on(_stream: Literal["stdout", "stderr"], data: bytes) -> None:
    """Print the output of the command."""
    os.write(1, data)


async def main(name: str, folder: str, script: str) -> None:
    """Run the command, forwarding its output, and then wait to be killed."""
    confinement, sandbox = UNRESTRICTED, Sandbox()
    if name != "unrestricted":
        confinement = Boundary(Protection()).confine(
            WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True), folder
        )
        results = findings(sandbox.launcher)
        working = [result.backend async for result in results if result.name == name]
        sandbox = Sandbox(backend=working[0])
    process = await Process.start(
        sandbox,
        ["/bin/sh", "-c", script],
        cwd=str(Path(folder)),
        env={"PATH": os.environ["PATH"]},
        confinement=confinement,
        on_output=pass_on,
    )
    await process.wait()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
