"""The files and folders that docs/architecture.md names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SOURCES = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*")]
# Folders of a home, and what is at the root of the repository.
OTHERS = {"sessions/", "archived_sessions/", "outputs/", "src/treadle/", "src/", "dist/"}


def test_each_named_module_exists() -> None:
    names = re.findall(r"`([\w/]+\.py)`", PAGE)

    assert names
    assert [name for name in names if not _exists(name)] == []


def test_each_named_folder_exists() -> None:
    names = [name for name in re.findall(r"`([\w/]+/)`", PAGE) if name not in OTHERS]

    assert names
    assert [name for name in names if not _exists(name.rstrip("/"))] == []


def test_the_map_has_every_folder_of_the_package() -> None:
    folders = {path.parent.name for path in (ROOT / "src" / "treadle").glob("*/__init__.py")}
    rows = re.findall(r"^\| (.+?) \|", PAGE, re.MULTILINE)
    named = {name.split("/")[0] for row in rows for name in re.findall(r"`([\w/]+/)`", row)}

    assert folders - named == set()


def _exists(name: str) -> bool:
    is_source = any(path == name or path.endswith(f"/{name}") for path in SOURCES)
    return is_source or (ROOT / name).exists() or (ROOT / "tests" / name).exists()
