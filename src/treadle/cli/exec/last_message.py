"""Writes the last message of an agent to the file that the user names.

The file is often in the workspace, where commands of the agent can replace it with a link. This
program runs outside their sandbox, so it does not follow links that they may have made.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from treadle.sandbox.paths import resolve
from treadle.support.files.unlinked import open_folder

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC


def write_message(text: str, name: str, may_be_planted: Callable[[str], bool]) -> None:
    """Replace the content of a file with this text.

    Raises:
        OSError: it cannot be written, or its path has a link that a command may have created.
    """
    with open(_open(name, may_be_planted), "wb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(0)
        os.set_blocking(file.fileno(), True)
        file.write(text.encode("utf-8"))


def _open(name: str, may_be_planted: Callable[[str], bool]) -> int:
    """Open a file for writing; follow only links that a command cannot have created.

    A running command can exchange a file and a link at any moment, so the path is resolved once,
    and no link is followed after that.
    """
    try:
        path = resolve(name, lambda link: not may_be_planted(link))
        parent, _, entry = path.rpartition("/")
        folder = open_folder(parent)
        try:
            # Commands cannot create links in /proc; those there lead to files that are open.
            no_links = 0 if path.startswith("/proc/") else os.O_NOFOLLOW
            # Non-blocking: a command could have made it a pipe that is never read.
            return os.open(entry, _FLAGS | no_links, 0o666, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        message = "path has a link that a sandboxed command may have made"
        raise OSError(errno.ELOOP, message, name) from error
