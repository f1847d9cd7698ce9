"""The home: the folder with everything that Treadle keeps."""

from __future__ import annotations

import os

# The fast handshake imports this module: nothing else may be imported here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def home_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder of configuration, threads and sockets."""
    chosen = environ.get("TREADLE_HOME") or environ.get("CODEX_HOME")
    # Not pathlib: its import alone would double the time to the first answer.
    return os.path.abspath(chosen) if chosen else os.path.expanduser("~/.treadle")  # noqa: PTH100, PTH111
