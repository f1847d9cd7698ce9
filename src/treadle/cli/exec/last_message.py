"""Writes the last message of an agent to the file that the user names.

The file is often in the workspace, where commands of the agent can replace it with a link. This
program runs outside their sandbox, so it does not follow links that they may have made.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from treadle.sandbox.paths import links

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC


def write_message(text: str, name: str, may_be_planted: Callable[[str], bool]) -> None:
    """Replace the content of a file with this text.

    Raises:
        OSError: it cannot be written, or its path has a link that a command may have made.
    """
    _refuse_links(name, may_be_planted)
    # Non-blocking: a command could have made it a pipe that is never read.
    descriptor = os.open(name, _FLAGS, 0o666)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - already open
        # A running command could have made a link in between.
        _refuse_links(name, may_be_planted)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.truncate(0)
        os.set_blocking(descriptor, True)
        file.write(text.encode("utf-8"))


def _refuse_links(name: str, may_be_planted: Callable[[str], bool]) -> None:
    if any(map(may_be_planted, links(name))):
        message = "path has a link that a sandboxed command may have made"
        raise OSError(errno.ELOOP, message, name)
