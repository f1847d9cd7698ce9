"""`fs/*`, side by side with the reference: every answer, refusal and notification."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.harness.golden import Golden
from tests.harness.scenarios import Scenario, Scene, check
from tests.harness.threads import Refused
from treadle.protocol.base import JsonValue

TREADLE_KEYS = frozenset({".error.data.errno", ".error.data.limit", ".result.watchId"})
_TIME = re.compile(r"\d{13}")


def furnish(cwd: str) -> None:
    """Put files, links and other things into the workspace."""
    root = Path(cwd)
    (root / "d" / "e").mkdir(parents=True)
    (root / "f").write_text("hello")
    (root / "d" / "g").write_text("g")
    (root / "link").symlink_to("f")
    (root / "folder-link").symlink_to("d")
    (root / "nowhere").symlink_to("missing")
    os.mkfifo(root / "pipe")


_DIFFERENT = frozenset({"watchId", "createdAtMs"})


def answers_to(*requests: tuple[str, JsonValue]) -> Callable[[Scene], Awaitable[None]]:
    """Return steps that make these requests, and record the answers."""

    async def steps(scene: Scene) -> None:
        furnish(scene.cwd)
        for method, params in requests:
            spelled = {
                key: value.replace("R/", f"{scene.cwd}/") if isinstance(value, str) else value
                for key, value in params.items()
            }
            try:
                answer = await scene.client.request(f"fs/{method}", spelled)
            except Refused:
                continue
            # The answer itself is compared, as a separate line.
            shown = _TIME.sub("<ms>", repr(_ordered(answer)))
            scene.client.received[-1]["answers"] = f"fs/{method} {shown}"

    return steps


def _ordered(answer: JsonValue) -> JsonValue:
    """Return an answer without what differs: the order of entries, our ids, times of creation.

    The reference does not know when a file was created, except on macOS.
    """
    if "entries" in answer:
        return sorted(answer["entries"], key=lambda entry: str(entry["fileName"]))
    return sorted((key, value) for key, value in answer.items() if key not in _DIFFERENT)


NAMES = ("f", "d", "link", "folder-link", "nowhere", "missing", "pipe", "f/x", "missing/x", "d/")
READ = [
    (method, {"path": f"R/{name}"})
    for name in NAMES
    for method in ("readFile", "getMetadata", "readDirectory")
]
MADE = [
    ("createDirectory", {"path": f"R/{name}", **options})
    for name in (*NAMES, "new/a/b", "other", "other/../third")
    for options in ({"recursive": False}, {})
]
WRITTEN = [
    ("writeFile", {"path": f"R/{name}", "dataBase64": data})
    for name in NAMES
    if name != "pipe"  # the reference waits for a reader of it
    for data in ("", "YQ==", "YQ", "YR==", "Y!==", "YQ==\n")
]
REMOVED = [
    ("remove", {"path": f"R/{name}", **options})
    for name in reversed(NAMES)
    for options in ({"recursive": False, "force": False}, {})
]
COPIED = [
    ("copy", {"sourcePath": f"R/{source}", "destinationPath": f"R/{target}", **options})
    for source, target in [
        ("f", "f2"),
        ("f", "d"),
        ("f", "missing/x"),
        ("f", "f/x"),
        ("d", "d2"),
        ("d", "d/e/x"),
        ("d", "folder-link/x"),
        ("d", "f"),
        ("link", "link2"),
        ("nowhere", "nowhere2"),
        ("pipe", "pipe2"),
        ("missing", "x"),
    ]
    for options in ({}, {"recursive": True})
]


async def test_files_are_answered_for_as_by_the_reference(golden: Golden, tmp_path: Path) -> None:
    requests = [*READ, *MADE, *WRITTEN, *COPIED, *READ, *REMOVED]
    scenario = Scenario(answers_to(*requests), keys=TREADLE_KEYS, has_events=False)
    await check(golden, "answers", scenario, tmp_path)


async def watched(scene: Scene) -> None:
    """A folder and a file in it are watched, and change."""
    furnish(scene.cwd)
    client, root = scene.client, Path(scene.cwd)
    await client.request("fs/watch", {"path": f"{root}/d", "watchId": "folder"})
    await client.request("fs/watch", {"path": f"{root}/f", "watchId": "file"})
    for change in (_write(root / "d" / "new"), _write(root / "f"), _rename(root / "d" / "new")):
        change()
        notification = (await client.until("fs/changed"))[-1]
        # The notification is compared, as part of the line.
        notification["method"] += f" {sorted(notification['params'].items())}"
    await client.request("fs/unwatch", {"watchId": "folder"})
    await client.request("fs/unwatch", {"watchId": "folder"})


def _write(path: Path) -> Callable[[], object]:
    return lambda: path.write_text("other")


def _rename(path: Path) -> Callable[[], object]:
    return lambda: path.rename(path.with_name("renamed"))


async def test_both_servers_send_the_same_notifications_of_changes(
    golden: Golden, tmp_path: Path
) -> None:
    scenario = Scenario(watched, keys=TREADLE_KEYS, has_events=False)
    await check(golden, "watches", scenario, tmp_path)
