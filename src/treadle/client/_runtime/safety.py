"""Recognition of commands that only read, by their text.

A server's summary of a command omits the parts that only format its output, and those may write
files or start programs. So the client classifies the command itself, with the server's rules for a
command that may run outside the sandbox: nothing that a sandboxed command planted may take effect.
Only the server knows which programs the names resolve to and which start-up files a shell reads.
"""

from __future__ import annotations

from typing import Final

# The shell that runs the command line, and a shell that the command line starts.
_SHELLS: Final = 2


def only_reads(command: str | None) -> bool:
    """Return whether a command, or the script it passes to a shell, only reads, lists or searches.

    Git never qualifies, because the settings of a repository can name programs. Nor does a shell
    that another shell starts: a server cannot keep it from reading start-up files.
    """
    # Imported here: few clients need it, and its import takes longer than the client's own.
    from treadle.shell.safe import is_known_safe

    # A server sends a command as a shell command line, which may itself name a shell.
    return command is not None and is_known_safe(
        ("sh", "-c", command), trusts_repository=False, max_shells=_SHELLS
    )
