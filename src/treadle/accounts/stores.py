"""Where the login of a home is stored: a file, the keyring of the system, or memory."""

from __future__ import annotations

import errno
import hashlib
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from treadle.accounts.document import MAX_BYTES
from treadle.accounts.settings import StoreMode
from treadle.support.files.descriptors import is_shortage
from treadle.support.files.reading import read_regular
from treadle.support.files.writing import replace_file, sync_folder

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

FILE: Final = "auth.json"
# Codex's names, so that either program finds the entry of the other.
SERVICE: Final = "Codex Auth"
KEYRING_SECONDS: Final = 5.0
"""How long the keyring may take: the user may have to unlock it."""

Stamp: TypeAlias = object

logger = logging.getLogger(__name__)


class LoginStoreError(OSError):
    """The store of logins cannot be used; `strerror` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, reason)
        self.strerror = reason

    def __str__(self) -> str:
        return self.strerror or ""


class AuthStore(Protocol):
    """Keeps one document."""

    def stamp(self) -> Stamp:
        """Return a value that changes with the document; `None` if there is none."""
        ...

    def read(self) -> bytes | None:
        """Return the document.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def write(self, data: bytes) -> None:
        """Replace the document.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def delete(self) -> None:
        """Remove the document, if there is one.

        Raises:
            OSError: it cannot be removed.
        """
        ...


class FileStore:
    """`auth.json` in the home, readable by its owner only."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE

    def stamp(self) -> Stamp:
        """Return what changes when the file is written."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def read(self) -> bytes | None:
        """Return the content of the file."""
        try:
            return read_regular(self._path, MAX_BYTES)
        except OSError as error:
            if is_shortage(error) or error.errno == errno.EIO:
                raise  # otherwise the login would be reported as missing, until the file changes
            return None

    def write(self, data: bytes) -> None:
        """Replace the file."""
        replace_file(self._path, data)

    def delete(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        # Otherwise a power failure could restore the deleted login.
        if self._path.parent.exists():
            sync_folder(self._path.parent)


class MemoryStore:
    """A document that ends with the process."""

    def __init__(self) -> None:
        self._data: bytes | None = None

    def stamp(self) -> Stamp:
        """Return the document itself."""
        return self._data

    def read(self) -> bytes | None:
        """Return the document."""
        return self._data

    def write(self, data: bytes) -> None:
        """Keep another document."""
        self._data = data

    def delete(self) -> None:
        """Forget the document."""
        self._data = None


class KeyringStore:
    """The keyring of the system, through the library `keyring`.

    Other programs can change the entry without notice, so it is read again only on request.
    """

    def __init__(self, home: Path) -> None:
        digest = hashlib.sha256(str(home.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
        self._account = f"cli|{digest[:16]}"
        self._file = FileStore(home)
        self._writes = 0

    def stamp(self) -> Stamp:
        """Return the number of writes by this process."""
        return ("keyring", self._writes)

    def read(self) -> bytes | None:
        """Return the entry."""
        text = _in_time(lambda keyring: keyring.get_password(SERVICE, self._account))
        return None if text is None else text.encode()[: MAX_BYTES + 1]

    def write(self, data: bytes) -> None:
        """Replace the entry, and remove a file of an earlier login."""
        text = data.decode()
        _in_time(lambda keyring: keyring.set_password(SERVICE, self._account, text))
        self._writes += 1
        self._file.delete()

    def delete(self) -> None:
        """Remove the entry and the file."""
        _in_time(self._delete)
        self._writes += 1
        self._file.delete()

    def _delete(self, keyring: KeyringBackend) -> None:
        if keyring.get_password(SERVICE, self._account) is not None:
            keyring.delete_password(SERVICE, self._account)


class AutoStore:
    """The keyring, or the file where there is no keyring."""

    def __init__(self, keyring: KeyringStore, file: FileStore) -> None:
        self._keyring = keyring
        self._file = file

    def stamp(self) -> Stamp:
        """Return what changes with either of them."""
        return self._keyring.stamp(), self._file.stamp()

    def read(self) -> bytes | None:
        """Return the entry of the keyring, or else the file."""
        try:
            found = self._keyring.read()
        except LoginStoreError as error:
            logger.warning("no keyring, using the file", extra={"reason": str(error)})
            found = None
        return self._file.read() if found is None else found

    def write(self, data: bytes) -> None:
        """Replace the entry, or the file."""
        try:
            self._keyring.write(data)
        except LoginStoreError as error:
            logger.warning("no keyring, using the file", extra={"reason": str(error)})
            self._file.write(data)

    def delete(self) -> None:
        """Remove both."""
        try:
            self._keyring.delete()
        except LoginStoreError as error:
            logger.warning("no keyring, using the file", extra={"reason": str(error)})
        self._file.delete()


def open_store(mode: StoreMode, home: Path) -> AuthStore:
    """Return the store of a home."""
    match mode:
        case "file":
            return FileStore(home)
        case "keyring":
            return KeyringStore(home)
        case "auto":
            return AutoStore(KeyringStore(home), FileStore(home))
        case "ephemeral":
            return MemoryStore()


class _Call(Protocol):
    def __call__(self, keyring: KeyringBackend, /) -> str | None: ...


def _in_time(call: _Call) -> str | None:
    """Use the keyring in a thread: it may wait for the user, and has no timeout itself.

    Raises:
        LoginStoreError: there is no keyring, it refuses, or it takes too long.
    """
    results: list[str | None] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            from keyring import get_keyring

            results.append(call(get_keyring()))
        except Exception as error:  # noqa: BLE001 - a boundary: backends raise errors of all kinds
            failures.append(error)

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(KEYRING_SECONDS)
    if results:
        return results[0]
    if not failures:
        raise LoginStoreError(f"the keyring did not answer within {KEYRING_SECONDS:g} s")
    if isinstance(failures[0], ImportError):
        raise LoginStoreError("the library `keyring` is not installed (extra `keyring`)")
    # Its text could quote the value.
    raise LoginStoreError(f"the keyring cannot be used: {type(failures[0]).__name__}")
