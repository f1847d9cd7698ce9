"""The errors of a client's command that cannot start."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from treadle.jsonrpc.errors import InternalError
from treadle.sandbox.backends.selection import SandboxUnavailable

MAX_CHARACTERS: Final = 8 * 1024 * 1024
"""The length of the arguments and variables of a command; no system can start a longer one."""


@contextmanager
def starting(noun: str) -> Iterator[None]:
    """Translate the faults of a start; `noun` is what could not be started."""
    try:
        yield
    except SandboxUnavailable as error:
        message = f"failed to spawn {noun}: {error}"
        raise InternalError(message, kind="sandboxUnavailable", fix=error.fix) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        message = f"failed to spawn {noun}: {reason} (os error {error.errno})"
        raise InternalError(message, kind="io") from error
    except ValueError as error:  # a null byte in an argument
        raise InternalError(f"failed to spawn {noun}: {error}", kind="invalidParams") from error


def check_size(arguments: Sequence[str], changes: Mapping[str, str | None] | None) -> None:
    """Check the length of a command before it is quoted, encoded and passed on.

    Raises:
        OSError: it is too long, as the system would report.
    """
    values = [*arguments, *(changes or {}), *(changes or {}).values()]
    if sum(len(value or "") for value in values) > MAX_CHARACTERS:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))


def changed_environment(
    environ: Mapping[str, str], changes: Mapping[str, str | None] | None
) -> dict[str, str]:
    """Return an environment with the changes of a client; `None` unsets a variable."""
    result = {**environ, **(changes or {})}
    return {name: value for name, value in result.items() if value is not None}


def quote(text: str) -> str:
    """Quote a text as JSON does, for messages."""
    return msgspec.json.encode(text).decode()
