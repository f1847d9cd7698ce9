"""A hook of mkdocs: pages of the site for files that lie outside docs/."""  # noqa: INP001 - mkdocs loads it by path

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ("SECURITY.md",)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files; on the site they lie beside the pages of docs/."""
    for name in OUTSIDE:
        text = (ROOT / name).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Follow a link out of docs/ to the page that stands for the file."""
    for name in OUTSIDE:
        markdown = markdown.replace(f"](../{name})", f"]({name})")
    return markdown
