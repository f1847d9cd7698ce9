"""Measurements of file search: a single search, and a session in which a user types."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.bench import Bench, per_program
from benchmarks.programs import NEWER
from benchmarks.report import Row, Target, Unit
from benchmarks.servers import ServerFailed
from benchmarks.timed_client import TimedClient, timed_client

_WORDS: Final = ("account", "billing", "cache", "dashboard", "editor", "filter", "gateway")
_KINDS: Final = ("controller", "model", "view", "test", "helper")
_QUERY: Final = "editorview"
_SESSION: Final = "typing"
_COMPLETED: Final = b'"fuzzyFileSearch/sessionCompleted"'


def file_search(bench: Bench) -> list[Row]:
    """Measure a search of a tree, and each letter of a query in a session."""
    once, first, letters = bench.samples(), bench.samples(), bench.samples()
    found = bench.samples()
    total = bench.sizes.files
    # Not below the homes: git may ignore their folder, and the search skips ignored files.
    with tempfile.TemporaryDirectory(prefix="bench-tree-") as root:
        _make_tree(Path(root), total)
        for program in bench.turns(bench.sizes.rounds):
            with timed_client(program, bench.homes) as client:
                answer = client.ask("fuzzyFileSearch", {"query": _QUERY, "roots": [root]})
                once[program.name].append(answer.seconds * 1e3)
                found[program.name].append(len(answer.result()["files"]))
                begun, *others = _type_query(client, root)
                first[program.name].append(begun * 1e3)
                letters[program.name].append(median(others) * 1e3)
    target = Target(at_most={NEWER: 1.0})
    return [
        Row(
            f"search of {total:,} files, median",
            Unit.MILLISECONDS,
            per_program(median, once),
            target,
        ),
        Row("  files found", Unit.COUNT, per_program(min, found)),
        Row("first letter in a session, median", Unit.MILLISECONDS, per_program(median, first)),
        Row("each further letter, median", Unit.MILLISECONDS, per_program(median, letters), target),
    ]


def _type_query(client: TimedClient, root: str) -> Iterator[float]:
    client.ask("fuzzyFileSearch/sessionStart", {"sessionId": _SESSION, "roots": [root]}).result()
    for end in range(1, len(_QUERY) + 1):
        params = {"sessionId": _SESSION, "query": _QUERY[:end]}
        yield client.ask_until("fuzzyFileSearch/sessionUpdate", params, _COMPLETED).seconds


def _make_tree(root: Path, total: int) -> None:
    made = 0
    for number, (area, part) in enumerate(product(_WORDS * total, _WORDS)):
        folder = root / area / f"{part}{number}"
        folder.mkdir(parents=True)
        for word, kind in product(_WORDS, _KINDS):
            if made == total:
                return
            (folder / f"{word}_{kind}.py").touch()
            made += 1
    raise ServerFailed(f"the tree has {made} of {total} files")
