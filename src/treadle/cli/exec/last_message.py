"""Writes the last message of an agent into the file that the user names.

The file often lies in the workspace, where commands of the agent can put a link in its place. This
program runs outside their sandbox, so it does not follow such a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from treadle.sandbox.paths import links

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC


def write_message(text: str, name: str, may_be_planted: Callable[[str], bool]) -> None:
    """Give a file this text and nothing else.

    Raises:
        OSError: it cannot be written, or is reached through a link that a command may have made.
    """
    _refuse_links(name, may_be_planted)
    # Without waiting: a command could have made it a pipe that is never read.
    descriptor = os.open(name, _FLAGS, 0o666)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - it is open already
        # One that still runs could have made a link in between.
        _refuse_links(name, may_be_planted)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.truncate(0)
        os.set_blocking(descriptor, True)
        file.write(text.encode("utf-8"))


def _refuse_links(name: str, may_be_planted: Callable[[str], bool]) -> None:
    if any(map(may_be_planted, links(name))):
        message = "it leads through a link that a sandboxed command may have made"
        raise OSError(errno.ELOOP, message, name)
