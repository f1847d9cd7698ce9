"""Why a backend does not work: translates errors of the kernel and bubblewrap to cause and fix."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_APT: Final = "install bubblewrap, for example: sudo apt-get install bubblewrap"
_CONTAINER: Final = (
    "run the container with user namespaces allowed (--security-opt seccomp=unconfined), "
    "or choose the sandbox policy externalSandbox if the container is sufficient isolation"
)
_SETTINGS: Final = (
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor forbids unprivileged user namespaces",
        (
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, "
            "or give bwrap an AppArmor profile that allows userns"
        ),
    ),
    (
        "kernel/unprivileged_userns_clone",
        "0",
        "the kernel forbids unprivileged user namespaces",
        "sudo sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "user/max_user_namespaces",
        "0",
        "the limit of user namespaces is 0",
        "sudo sysctl -w user.max_user_namespaces=15000",
    ),
)


def explain_bubblewrap(complaint: str, proc: Path = Path("/proc/sys")) -> tuple[str, str]:
    """Return cause and fix from an error of bubblewrap; without one, it is not installed."""
    if not complaint:
        return "bwrap is not installed", _APT
    is_about_namespaces = "amespace" in complaint or "uid map" in complaint
    for name, value, reason, fix in _SETTINGS:
        if _read(proc / name) == value and is_about_namespaces:
            return f"{reason} ({complaint})", fix
    if is_about_namespaces or "not permitted" in complaint:
        reason = f"namespaces are forbidden here, as in most containers ({complaint})"
        return reason, _CONTAINER
    return complaint, "run it by hand: bwrap --ro-bind / / --unshare-all true"


def explain_landlock(complaint: str) -> tuple[str, str]:
    """Return cause and fix from an error of the kernel."""
    if "not implemented" in complaint:
        return "this kernel has no Landlock, or a container hides it", "use Linux 5.13 or newer"
    if "not supported" in complaint:
        return "Landlock is not enabled", "add landlock to the lsm= parameter of the kernel"
    return complaint, "see the message"


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except OSError:
        return ""
