"""Where plugins and marketplaces come from: folders, git repositories, packages."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.engine.plugins.documents import MAX_PATH, path_below
from treadle.engine.plugins.ids import BadPlugin
from treadle.protocol.base import JsonValue
from treadle.protocol.plugin import (
    GitPluginSource,
    LocalPluginSource,
    NpmPluginSource,
    PluginSource,
)

_SHORTHAND: Final = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
# Neither an option of git, nor something that a shell or a helper of git would interpret.
_REF: Final = re.compile(r"[A-Za-z0-9_.@+/][A-Za-z0-9_.@+/-]*")
_HTTP: Final = ("http://", "https://")
_GITHUB: Final = "https://github.com/"
MAX_SPARSE: Final = 100
MAX_URL: Final = 2048


class GitSource(Struct, frozen=True):
    """A repository, one of its branches, tags or commits, and the parts of it to keep."""

    url: str
    ref: str | None = None
    sparse_paths: tuple[str, ...] = ()


class FolderSource(Struct, frozen=True):
    """A folder on this machine, without links."""

    path: Path


def parse_marketplace_source(
    source: str, ref: str | None, sparse_paths: tuple[str, ...], *, user_home: str | None
) -> GitSource | FolderSource:
    """Read the source of a marketplace as a user writes it.

    Raises:
        BadPlugin: it is not a folder, a URL of git, or `owner/repo`.
    """
    text = source.strip()
    if not text:
        raise BadPlugin("marketplace source must not be empty")
    base, fragment = _split_ref(text)
    if _is_local(base):
        if ref or fragment:
            raise BadPlugin("--ref is only supported for git marketplace sources")
        folder = _folder(base, user_home)
        if sparse_paths:
            raise BadPlugin("--sparse is only supported for git marketplace sources")
        return FolderSource(folder)
    url = git_url(base)
    if url is None:
        expected = "expected owner/repo, a git URL, or a local marketplace path"
        raise BadPlugin(f"invalid marketplace source format; {expected}")
    chosen = ref or fragment
    if chosen is not None:
        check_ref(chosen)
    return GitSource(url, chosen, checked_sparse_paths(sparse_paths))


def _split_ref(source: str) -> tuple[str, str | None]:
    base, mark, ref = source.rpartition("#")
    if not mark and "://" not in source and not _is_ssh(source):
        base, mark, ref = source.rpartition("@")
    return (base, ref.strip() or None) if mark else (source, None)


def _is_local(source: str) -> bool:
    return source in (".", "..") or source.startswith(("/", "./", "../", "~/"))


def _folder(source: str, user_home: str | None) -> Path:
    if "\0" in source:
        raise BadPlugin("invalid local marketplace source: it is not a path")
    named = Path(user_home, source[2:]) if user_home and source[:2] == "~/" else Path(source)
    try:
        folder = Path(os.path.realpath(named, strict=True))
    except OSError as error:
        reason = f"failed to resolve local marketplace source path: {error.strerror}"
        raise BadPlugin(reason) from error
    if not folder.is_dir():
        raise BadPlugin("local marketplace source must be a directory, not a file")
    return folder


def _is_ssh(source: str) -> bool:
    return source.startswith("ssh://") or (source.startswith("git@") and ":" in source)


def git_url(source: str) -> str | None:
    """Return the URL of a repository that is reached over HTTP or ssh; `None` for anything else."""
    if len(source) > MAX_URL or any(each.isspace() or ord(each) < 32 for each in source):
        return None
    if source.startswith(_HTTP):
        url = source.rstrip("/")
        return f"{url}.git" if url.startswith(_GITHUB) and not url.endswith(".git") else url
    if _is_ssh(source):
        # A host that begins with a hyphen would be an option of ssh.
        host = source.removeprefix("ssh://").rpartition("@")[2]
        return None if host.startswith("-") else source
    return f"{_GITHUB}{source}.git" if _SHORTHAND.fullmatch(source) else None


def check_ref(ref: str) -> None:
    """Check the name of a branch, a tag or a commit.

    Raises:
        BadPlugin: it cannot be one.
    """
    if not _REF.fullmatch(ref) or ".." in ref or len(ref) > MAX_PATH:
        raise BadPlugin(f"invalid git ref {ref[:200]!r}: expected a branch, a tag or a commit")


def checked_sparse_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parts of a repository, relative to it.

    Raises:
        BadPlugin: a part is outside, or there are too many.
    """
    if len(paths) > MAX_SPARSE:
        raise BadPlugin(f"sparsePaths has {len(paths)} entries: expected at most {MAX_SPARSE}")
    for path in paths:
        is_inside = path and not path.startswith(("/", "-")) and ".." not in path.split("/")
        if not is_inside or "\0" in path or len(path) > MAX_PATH:
            raise BadPlugin(f"invalid sparse path {path[:200]!r}: expected a path inside")
    return paths


def read_source(value: JsonValue, root: Path) -> PluginSource:
    """Read the source of a plugin of a marketplace.

    Raises:
        BadPlugin: it is invalid, or of an unknown kind.
    """
    if isinstance(value, str):
        return _local(value, root)
    table = value if isinstance(value, dict) else {}
    match table.get("source"):
        case "local":
            return _local(_field(table, "path"), root)
        case "url":
            return _git(table, _option(table, "path"))
        case "git-subdir":
            return _git(table, _field(table, "path"))
        case "github":
            return _git({**table, "url": table.get("repo")}, _option(table, "path"))
        case "npm":
            return NpmPluginSource(
                package=_field(table, "package"),
                registry=_option(table, "registry"),
                version=_option(table, "version"),
            )
        case _:
            raise BadPlugin("unsupported plugin source")


def _local(path: str, root: Path) -> LocalPluginSource:
    if path in (".", "./"):
        return LocalPluginSource(path=str(root))
    below = path_below(root, path)
    if below is None:
        rule = "must start with `./` and stay within the marketplace root"
        raise BadPlugin(f"local plugin source path {rule}")
    return LocalPluginSource(path=str(below))


def _git(table: dict[str, JsonValue], path: str | None) -> GitPluginSource:
    url = git_url(_field(table, "url").strip())
    if url is None:
        raise BadPlugin("invalid git plugin source url")
    ref, sha = _option(table, "ref"), _option(table, "sha")
    for each in (ref, sha):
        if each is not None:
            check_ref(each)
    if path is not None:
        path = path.removeprefix("./").strip("/")
        if not path or path_below(Path("/"), f"./{path}") is None:
            raise BadPlugin("git plugin source path must stay within the repository root")
    return GitPluginSource(url=url, path=path, ref_name=ref, sha=sha)


def _field(table: dict[str, JsonValue], name: str) -> str:
    value = _option(table, name)
    if value is None:
        raise BadPlugin(f"expected a string at `source.{name}`")
    return value


def _option(table: dict[str, JsonValue], name: str) -> str | None:
    value = table.get(name)
    return value.strip()[:MAX_URL] or None if isinstance(value, str) else None
