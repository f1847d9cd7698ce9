"""The server's answer to `initialize`.

Standard library only, and little of it: this answers before anything else is imported. Even
`typing` is avoided: it would take a fifth of the time to the first answer.
"""

from __future__ import annotations

import os
import sys

from treadle.support.home import home_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

# Clients read the protocol release from the user agent, and disable features for older ones.
PROTOCOL_VERSION: Final = "0.163.0"


def is_header_value(text: str) -> bool:
    """Return whether a text is valid in an HTTP header, as a client's name must be."""
    return all(character == "\t" or " " <= character != "\x7f" for character in text)


def describe(name: str, version: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the answer to `initialize` under its wire names."""
    machine = os.uname().machine if hasattr(os, "uname") else "unknown"
    terminal = environ.get("TERM_PROGRAM") or environ.get("TERM") or "unknown"
    agent = f"{name}/{PROTOCOL_VERSION} ({_system()}; {machine}) {terminal} ({name}; {version})"
    return {
        "userAgent": "".join(c if " " <= c <= "~" else "_" for c in agent),
        # A path that is not UTF-8 is shown with replacement characters, as in all answers.
        "codexHome": home_folder(environ).encode(errors="surrogateescape").decode(errors="replace"),
        "platformFamily": "windows" if sys.platform == "win32" else "unix",
        "platformOs": {"darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform),
    }


def _system() -> str:
    """Return the name and version of the operating system: `Debian 12.0.0`."""
    try:
        with open("/etc/os-release", encoding="utf-8") as file:  # noqa: PTH123 - no pathlib here
            pairs = dict(line.rstrip().split("=", 1) for line in file if "=" in line)
    except (OSError, UnicodeDecodeError, ValueError):
        return sys.platform
    name = pairs.get("ID", sys.platform).strip('"').capitalize()
    version = [*pairs.get("VERSION_ID", "0").strip('"').split("."), "0", "0"][:3]
    return f"{name} {'.'.join(version)}"
