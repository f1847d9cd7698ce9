"""Fuzzy file search, side by side with the reference: which files, in which order, and why."""

from __future__ import annotations

import os
from pathlib import Path

from tests.harness.golden import Golden
from tests.harness.scenarios import Scenario, Scene, check
from tests.harness.threads import Refused
from tests.server.file_search.corpus import paths, plant
from treadle.protocol.base import JsonValue

FILES = [
    *(".hidden/app.txt", ".env.app", "docs/app.md", "src/App.py", "src/main.rs", "src/über.txt"),
    *("src/with space.md", "sub/deep/apple", "sub/keep.log", "sub/app.log", "build/app.o"),
    *("a$b", "^caret", "it's", "!bang", "back\\slash", "excluded_app", "ignored_app", "nested/"),
    *("sub/deep/app.tmp", "nested/app", "nested/build/app", ".git/info/exclude"),
]
WORDS = ("app", "App", "APP", "ap py", "  app  ", "app md", "m", "src/", "src/main.rs", "sub", "/")
MARKS = ("^app", "^src", "app$", "'pp", "!app md", "app !md", "^.env.app$", "\\^caret", "a$b")
TEXTS = ("uber", "über", "ÜBER", "é", "with space", "with\\ space", "it's", "back\\", "zzzz", "")
PLACES = ("link", "loop", "dangling", "keep", "excluded", "ignored", "nested", "pipe")
QUERIES = (
    "ser",
    "appmain",
    "thrstr",
    "src handler",
    "Config",
    "hs.py",
    "main$",
    "docs/ !md",
    "qjs",
)


def furnish(root: Path) -> None:
    """Plant files that match in different ways, and what hides some of them."""
    plant(root, FILES)
    (root / ".gitignore").write_text("build/\n*.log\n!keep.log\n/sub/deep/*.tmp\n")
    (root / ".ignore").write_text("ignored*\n")
    (root / ".git/info/exclude").write_text("excluded*\n")
    (root / "sub/link").symlink_to("../src")
    (root / "loop").symlink_to(".")
    (root / "dangling_app").symlink_to("nowhere")
    os.mkfifo(root / "pipe")


async def ask(scene: Scene, query: str, roots: list[str]) -> None:
    """Search, and have the answer compared in a separate line."""
    params = {"query": query, "roots": [str(Path(scene.cwd, root)) for root in roots]}
    try:
        files = (await scene.client.request("fuzzyFileSearch", params))["files"]
    except Refused:
        return
    # The reference finds the root itself too, as a path without a name.
    shown = [_shown(file, scene.cwd) for file in files if file["path"]]
    scene.client.received[-1]["answers"] = f"fuzzyFileSearch {query!r} {roots} {shown}"


def _shown(file: JsonValue, cwd: str) -> list[JsonValue]:
    root = os.path.relpath(file["root"], cwd)
    return [root, *(file[name] for name in ("path", "match_type", "file_name", "score", "indices"))]


async def in_a_workspace(scene: Scene) -> None:
    """Search for words with and without special characters."""
    furnish(Path(scene.cwd))
    for query in (*WORDS, *MARKS, *TEXTS, *PLACES):
        await ask(scene, query, ["."])
    await ask(scene, "app", [])
    await ask(scene, "app", ["missing"])
    await ask(scene, "main", ["src/main.rs"])
    await ask(scene, "app", ["src", "nested"])


async def in_a_large_workspace(scene: Scene) -> None:
    """Search among 20,000 files, and compare all but those that share the lowest score."""
    plant(Path(scene.cwd), paths(20_000))
    for query in QUERIES:
        params = {"query": query, "roots": [scene.cwd]}
        files = (await scene.client.request("fuzzyFileSearch", params))["files"]
        scores = [file["score"] for file in files]
        sure = [[file["path"], file["indices"]] for file in files if file["score"] > scores[-1]]
        scene.client.received[-1]["answers"] = f"fuzzyFileSearch {query!r} {scores} {sure}"


async def test_files_are_found_as_by_the_reference(golden: Golden, tmp_path: Path) -> None:
    await check(golden, "workspace", Scenario(in_a_workspace, has_events=False), tmp_path)


async def test_20_000_files_are_ranked_as_by_the_reference(golden: Golden, tmp_path: Path) -> None:
    await check(golden, "large", Scenario(in_a_large_workspace, has_events=False), tmp_path)
