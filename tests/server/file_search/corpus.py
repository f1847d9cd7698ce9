"""Trees of files to search in."""

from __future__ import annotations

import os
import random
from pathlib import Path

WORDS = (
    "app main index server client util test config handler model view store thread turn item "
    "approve sandbox command exec file search match parser lexer stream buffer http json schema "
    "types core lib module build script readme docs guide auth session queue worker fleet driver"
).split()
ENDINGS = (".py", ".rs", ".ts", ".md", ".json", ".txt", ".tsx", ".go", "")


def paths(count: int, seed: int = 1) -> list[str]:
    """Return paths of files in some hundred folders, the same ones each time."""
    chance = random.Random(seed)  # noqa: S311 - the same tree each time

    def name() -> str:
        words = chance.choices(WORDS, k=chance.choice((1, 1, 2, 2, 3)))
        big = [word.capitalize() for word in words]
        name = chance.choice(("_".join(words), "-".join(words), "".join(big), words[0] + big[-1]))
        return f"{name}{chance.randrange(100)}" if chance.random() < 0.2 else name

    folders = [""]
    for _ in range(count // 50):
        # A file never has the name of a folder.
        folder = f"{chance.choice(folders)}{name()}.d/"
        if folder.count("/") < 7:
            folders.append(folder)
    found: dict[str, None] = {}
    while len(found) < count:
        found[chance.choice(folders) + name() + chance.choice(ENDINGS)] = None
    return list(found)


def plant(root: Path, names: list[str]) -> None:
    """Create empty files; a name that ends with a slash is a folder."""
    for folder in {os.path.dirname(name) for name in names}:  # noqa: PTH120 - thousands of them
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in names:
        if not name.endswith("/"):
            os.close(os.open(root / name, os.O_CREAT | os.O_WRONLY))
