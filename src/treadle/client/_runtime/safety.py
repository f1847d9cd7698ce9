"""Which commands only read, as far as their words tell.

A server's summary of a command leaves out the parts that only shape its output, and those may write
files or start programs. So the command itself is judged, as the server judges it, but for a command
that may run outside the sandbox: nothing that a sandboxed command can have planted may take effect.
Which programs the names in a command lead to, and which start-up files its shell reads, only the
server can know.
"""

from __future__ import annotations

from typing import Final

# The one that the line is for, and the one that the line starts.
_SHELLS: Final = 2


def only_reads(command: str | None) -> bool:
    """Whether a command, or the script that it gives to a shell, only reads, lists or searches.

    No use of git counts, because the settings of a repository can name programs. Nor does a shell
    that is started by another one: a server cannot keep it from reading start-up files.
    """
    # Few clients need it, and it takes longer to import than the client itself.
    from treadle.shell.safe import is_known_safe

    # A server sends the words of a command as a line for a shell, whichever shell is in it.
    return command is not None and is_known_safe(
        ("sh", "-c", command), trusts_repository=False, max_shells=_SHELLS
    )
