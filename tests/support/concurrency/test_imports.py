"""Late imports run in threads, one after the other."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from treadle.support.concurrency.imports import import_late

MODULE = """
import threading
import {shared} as shared
shared.log.append("begin")
shared.other.wait(0.1)
shared.log.append("end")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "late_shared.py").write_text(
        "import threading\nlog = []\nother = threading.Event()\n"
    )
    for name in ("late_a", "late_b"):
        (tmp_path / f"{name}.py").write_text(MODULE.format(shared="late_shared"))
    for name in ("late_shared", "late_a", "late_b"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
async def test_two_imports_at_once_run_one_after_the_other() -> None:
    """Two threads that imported parts of one library at once deadlocked, and one failed."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(import_late("late_a"))
        tasks.create_task(import_late("late_b", "late_a"))

    assert sys.modules["late_shared"].log == ["begin", "end"] * 2


async def test_a_missing_module_is_reported_each_time() -> None:
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
            await import_late("no_such_module_here")
