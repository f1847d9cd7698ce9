"""Confinement on macOS: a profile for `sandbox-exec`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from treadle.sandbox.paths import between, is_within
from treadle.sandbox.policy import Confinement
from treadle.support.listeners import OWN_LISTENERS

PROGRAM: Final = "/usr/bin/sandbox-exec"

_BASE: Final = """\
(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow user-preference-read)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.trustd.agent")
  (global-name "com.apple.SecurityServer"))
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl
  (literal "/dev/ptmx")
  (regex #"^/dev/ttys[0-9]+$"))
(allow file-write-data
  (require-all (path "/dev/null") (vnode-type CHARACTER-DEVICE)))
(allow file-read* file-write-data file-ioctl (literal "/dev/tty"))
"""


def arguments(argv: Sequence[str], confinement: Confinement) -> list[str]:
    """Wrap a command in `sandbox-exec`; paths are parameters, so no path can change the rules."""
    paths = _parameters(confinement)
    defines = [f"-D{name}={path}" for path, name in paths.items()]
    return [PROGRAM, "-p", profile(confinement), *defines, "--", *argv]


def profile(confinement: Confinement) -> str:
    """Return the rules in Seatbelt's language."""
    names = _parameters(confinement)
    return _BASE + "".join(f"{rule}\n" for rule in _rules(confinement, names))


def _parameters(confinement: Confinement) -> dict[str, str]:
    paths = [root.path for root in confinement.writable]
    paths += [*(confinement.readable or ()), *confinement.closed()]
    paths += [path for root in confinement.writable for path in _anchors(root.path, confinement)]
    paths += sorted(OWN_LISTENERS.paths) if confinement.network else []
    return {path: f"PATH_{number}" for number, path in enumerate(dict.fromkeys(paths))}


def _rules(confinement: Confinement, names: dict[str, str]) -> Iterator[str]:
    if confinement.readable is None:
        yield "(allow file-read*)"
    for path in confinement.readable or ():
        yield f"(allow file-read* {_below(path, names)})"
    for root in confinement.writable:
        # Also the name itself, so that it can neither be created nor moved away.
        kept = [f"(require-not {_below(path, names)})" for path in _closed(root.path, confinement)]
        # Rules apply to paths: the contents of a renamed folder would no longer be closed.
        kept += [
            f'(require-not (literal (param "{names[path]}")))'
            for path in _anchors(root.path, confinement)
        ]
        conditions = " ".join([_below(root.path, names), *kept])
        yield f"(allow file-read* file-write* (require-all {conditions}))"
    for path in confinement.denied:
        yield f"(deny file-read* file-write* {_below(path, names)})"
    if confinement.network:
        yield "(allow network-outbound)"
        # A command that reaches its own server could have it run others without a sandbox.
        for port in sorted(OWN_LISTENERS.ports):
            yield f'(deny network-outbound (remote ip "*:{port}"))'
        for path in sorted(OWN_LISTENERS.paths):
            yield f'(deny network-outbound (literal (param "{names[path]}")))'
        yield "(allow network-inbound)"
        yield "(allow system-socket)"


def _closed(root: str, confinement: Confinement) -> list[str]:
    """Return what stays closed in a root, even if it belongs to another root."""
    read_only = [path for other in confinement.writable for path in other.read_only]
    kept = dict.fromkeys((*read_only, *confinement.protected))
    return [path for path in kept if is_within(path, root)]


def _anchors(root: str, confinement: Confinement) -> list[str]:
    """Return the folders between a root and what stays closed in it."""
    closed = _closed(root, confinement)
    return list(dict.fromkeys(anchor for path in closed for anchor in between(root, path)))


def _below(path: str, names: dict[str, str]) -> str:
    return f'(subpath (param "{names[path]}"))'
