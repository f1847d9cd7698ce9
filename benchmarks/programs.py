"""The compared programs and how to obtain them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TREADLE: Final = "treadle"
NEWER: Final = "0.163.0"
OLDER: Final = "0.118.0"
OLDEST: Final = "0.98.0"
LATEST_TYPES: Final = "0.169.0"

# Up to 0.98 one package holds the binaries of all systems.
_PACKAGES: Final = {
    OLDER: f"@openai/codex@{OLDER}-linux-x64",
    OLDEST: f"@openai/codex@{OLDEST}",
    LATEST_TYPES: f"@openai/codex@{LATEST_TYPES}-linux-x64",
}
_VENDOR: Final = "package/vendor/x86_64-unknown-linux-musl"
_MEMBERS: Final = (f"{_VENDOR}/codex/codex", f"{_VENDOR}/bin/codex")
_FETCH_SECONDS: Final = 180


class Unavailable(Exception):
    """A program is not available; the message states the reason."""


@dataclass(frozen=True, slots=True)
class Program:
    """An executable with an `app-server` command."""

    name: str
    path: Path


def find_treadle() -> Program:
    """Return the command that is installed in this environment.

    Raises:
        Unavailable: the command is not installed.
    """
    path = Path(sysconfig.get_path("scripts"), "treadle")
    if not path.exists():
        raise Unavailable(f"{sys.executable} has no treadle beside it; `make bench` makes one")
    return Program(TREADLE, path)


def find_newer() -> Program:
    """Return the reference binary from its Python package.

    Raises:
        Unavailable: the package is not installed.
    """
    try:
        from codex_cli_bin import bundled_codex_path
    except ImportError as error:
        raise Unavailable("the package openai-codex-cli-bin is not installed") from error
    return Program(NEWER, Path(bundled_codex_path()))


def find_older(release: str = OLDER) -> Program:
    """Return an older reference binary, which npm fetches on first use into the environment.

    Raises:
        Unavailable: npm, the package or a supported system is missing.
    """
    package = _PACKAGES[release]
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Unavailable(f"{package} does not run on this system")
    path = Path(sys.prefix, "reference", release, "codex")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _fetch(package, path)
    return Program(release, path)


def folder_for_homes() -> Path:
    """Return a folder in which homes of the compared programs can be made.

    The reference refuses its sandbox helper in a home below the temporary folder, and a clone with
    its environment may be there.

    Raises:
        Unavailable: no such folder can be written.
    """
    temporary = {Path(name).resolve() for name in ("/tmp", tempfile.gettempdir())}  # noqa: S108 - the one is for servers without TMPDIR
    for name in (sys.prefix, "/var/tmp", "/dev/shm"):  # noqa: S108 - names in them are random
        folder = Path(name).resolve()
        if temporary.isdisjoint((folder, *folder.parents)) and os.access(folder, os.W_OK):
            return folder
    raise Unavailable("there is no folder for homes outside the temporary folder")


def _fetch(package: str, path: Path) -> None:
    folder = path.parent
    # Without a registry npm would wait for minutes, several times.
    limits = ["--fetch-retries=1", "--fetch-timeout=60000"]
    place = ["--pack-destination", str(folder)]
    command = ["npm", "pack", "--silent", *limits, *place, package]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_FETCH_SECONDS)
        archive = next(folder.glob("*.tgz"))
        with tarfile.open(archive) as tar:
            member = next((name for name in _MEMBERS if name in tar.getnames()), _MEMBERS[0])
            content = tar.extractfile(member)
            if content is None:
                raise Unavailable(f"{package} holds no {member}")
            partial = path.with_suffix(".partial")
            partial.write_bytes(content.read())
        archive.unlink()
    except (
        OSError,
        subprocess.SubprocessError,
        StopIteration,
        KeyError,
        tarfile.TarError,
    ) as error:
        raise Unavailable(f"npm could not fetch {package}: {error}") from error
    partial.chmod(0o755)
    # The last step: an interrupted fetch leaves no file that looks complete.
    partial.rename(path)
