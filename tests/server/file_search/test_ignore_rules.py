"""Patterns of ignored files mean what they mean to git."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from tests.server.file_search.corpus import plant
from treadle.server.file_search.ignore_rules import MAX_PATTERNS, IgnoreRules
from treadle.server.file_search.walk import Walk

NAMES = (
    *("a", "b", "ab", "foo", "foo.log", "bar.txt", "a.b", "[x]", "x y", "b#", "!z", "build"),
    *("c.d.e", "é.log", "tmp~", "-x", "aXbXc"),
)
PATTERNS = (
    *NAMES,
    *("*.log", "*", "?", "a*", "*b", "[ab]", "[!a]*", "[a-c]", "*.*", "f*o*", "**", "\\!z"),
    *("\\[x\\]", "b\\#", "[^b]", "*.t?t", "foo.*", "x\\ y", "x y ", "a*b*c", "#a", "", "\\a"),
)


def pattern(chance: random.Random) -> str:
    """Return a line of a file of patterns."""
    base, name = chance.choice(PATTERNS), chance.choice(NAMES)
    shapes = (
        *("{base}", "{base}", "{base}", "{base}/", "/{base}", "/{base}/", "{name}/{base}"),
        *("**/{base}", "{base}/**", "{name}/**/{base}", "**/{name}/**/{base}"),
    )
    line = chance.choice(shapes).format(base=base, name=name)
    return f"!{line}" if chance.random() < 0.25 and line.strip() else line


@pytest.mark.parametrize("seed", range(40))
def test_a_walk_finds_what_git_does_not_ignore(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same tree each time
    folders = ["", *(f"{a}/" for a in chance.sample(NAMES, 3))]
    folders += [f"{chance.choice(folders)}{chance.choice(NAMES)}.d/" for _ in range(3)]
    files = {f"{chance.choice(folders)}{chance.choice(NAMES)}" for _ in range(30)}
    plant(tmp_path, sorted(file for file in files if f"{file}/" not in folders) + folders[1:])
    for folder in folders:
        if folder == "" or chance.random() < 0.3:
            lines = [pattern(chance) for _ in range(4)]
            (tmp_path / folder / ".gitignore").write_text("\n".join(lines))
    git = ["git", "-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=false"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    listing = [*git, "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=tmp_path, check=True, capture_output=True, text=True)

    walk = Walk([str(tmp_path)], lambda: False)
    walk.run()

    found = {entry.path for entry in walk.entries if not entry.is_folder}
    assert {path for path in found if not path.startswith(".git/")} == {
        path for path in listed.stdout.split("\0") if path
    }


def test_many_stars_are_compared_in_few_steps() -> None:
    """Each star doubled the time, in which no other thread runs."""
    rules = IgnoreRules("a*" * 60 + "b\n" + "**/a/" * 60 + "b\n")

    assert rules.judge("a" * 255, "a" * 255, is_folder=False) is None
    assert rules.judge("a/" * 1000 + "c", "c", is_folder=False) is None


def test_patterns_beyond_the_limit_have_no_effect() -> None:
    rules = IgnoreRules("x\n" * MAX_PATTERNS + "y\n")

    assert rules.judge("x", "x", is_folder=False) is True
    assert rules.judge("y", "y", is_folder=False) is None
