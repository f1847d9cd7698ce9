"""Which commands only read, as far as their words tell.

A server's summary of a command leaves out the parts that only shape its output, and those may write
files or start programs. So the command itself is judged, as the server judges it.
"""

from __future__ import annotations


def only_reads(command: str | None) -> bool:
    """Whether a command, or the script that it gives to a shell, only reads, lists or searches."""
    # Few clients need it, and it takes longer to import than the client itself.
    from treadle.shell.safe import is_known_safe

    # A server sends the words of a command as a line for a shell, whichever shell is in it.
    return command is not None and is_known_safe(("sh", "-c", command))
