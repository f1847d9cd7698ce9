"""Notifies clients when skills on disk change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from treadle.engine.project.skills import skill_folders
from treadle.server.files.shared_path import PathWatch
from treadle.server.files.watch import Watcher
from treadle.support.concurrency.tasks import BackgroundTasks

MAX_WATCHED: Final = 512

logger = logging.getLogger(__name__)


class SkillsWatch:
    """Watches the folders of listed skills, including everything below them."""

    def __init__(
        self, watcher: Watcher, tasks: BackgroundTasks, publish: Callable[[], None]
    ) -> None:
        self._watcher = watcher
        self._tasks = tasks
        self._publish = publish
        self._watched: set[Path] = set()

    async def cover(self, roots: Iterable[Path]) -> None:
        """Watch these folders too, whether or not they exist yet."""
        new = [root for root in roots if root not in self._watched]
        if new:
            # The root by its given name, since it may be created or relinked; the rest as on disk.
            run = self._watcher.workers.run
            below = [folder for root in new for folder in await run(_below, root)]
            await self._add([*new, *below])

    async def _add(self, folders: Iterable[Path]) -> None:
        for folder in dict.fromkeys(folders):
            if folder in self._watched or len(self._watched) >= MAX_WATCHED:
                continue
            self._watched.add(folder)
            try:
                watch = await self._watcher.watch(str(folder))
            except OSError as error:
                logger.warning("cannot watch", extra={"path": str(folder), "reason": str(error)})
                continue
            if self._tasks.is_closed:
                watch.end()
                return
            self._tasks.spawn(self._follow(folder, watch), f"watch skills in {folder}")

    async def _follow(self, folder: Path, watch: PathWatch) -> None:
        try:
            while True:
                if await watch.changes():
                    # New folders are watched first: a notified client lists the skills only once.
                    await self._add(await self._watcher.workers.run(_below, folder))
                    self._publish()
        finally:
            watch.end()


def _below(folder: Path) -> list[Path]:
    return list(skill_folders(folder))
