"""Folder changes from the Linux kernel, on the event loop; no thread waits for them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable
from typing import Final

_MODIFY: Final = 0x2
_ATTRIB: Final = 0x4
_MOVED_FROM: Final = 0x40
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_DELETE_SELF: Final = 0x400
_MOVE_SELF: Final = 0x800
_ONLYDIR: Final = 0x0100_0000
_CHANGES: Final = (
    _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
)
_EVENT: Final = struct.Struct("iIII")
# At most 256 changes; other connections are served before the next ones are read.
_READ_BYTES: Final = 4 * 1024


class Inotify:
    """One queue for any number of folders, each identified by a number.

    `on_change` receives the folder's number and the name of the changed entry. The name is empty
    for the folder itself; the number is -1 if the queue overflowed and changes were lost.
    """

    def __init__(self, on_change: Callable[[int, str], None]) -> None:
        self._on_change = on_change
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._checked(
            self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify"
        )
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)

    def add(self, folder: str) -> int:
        """Watch a folder; the number is the same for every path that leads to it.

        Raises:
            OSError: the folder is missing or unreadable, or the system limit of watches is reached.
        """
        number = self._libc.inotify_add_watch(
            self._descriptor, os.fsencode(folder), ctypes.c_uint32(_CHANGES | _ONLYDIR)
        )
        return self._checked(number, folder)

    def remove(self, number: int) -> None:
        """Stop watching a folder, which may no longer exist."""
        self._libc.inotify_rm_watch(self._descriptor, number)

    def close(self) -> None:
        """Stop watching all folders."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        offset = 0
        while offset < len(data):
            number, _, _, size = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size
            name = data[offset : offset + size].rstrip(b"\0")
            offset += size
            self._on_change(number, os.fsdecode(name))

    @staticmethod
    def _checked(number: int, path: str) -> int:
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
        return number
