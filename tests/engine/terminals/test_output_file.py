"""The file that has the whole output of a command."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from treadle.engine.terminals.output_file import OutputFile
from treadle.sandbox.limits import CommandLimits


async def test_waiting_for_a_finished_write_does_not_block_the_loop(
    tmp_path: Path,
) -> None:
    with ThreadPoolExecutor(1) as executor:
        asyncio.get_running_loop().set_default_executor(executor)
        file = OutputFile(tmp_path / "outputs" / "thread", "call", CommandLimits())
        file.add(b"output")
        # The only thread has written it, and the loop has not learned of that yet.
        executor.submit(lambda: None).result()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(file.written())
    assert file.path.read_bytes() == b"output"
    file.close()
