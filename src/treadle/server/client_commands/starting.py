"""The errors of a client's command that cannot start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from treadle.jsonrpc.errors import InternalError
from treadle.sandbox.backends.selection import SandboxUnavailable


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


def changed(environ: Mapping[str, str], changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return an environment with the changes of a client; null unsets a variable."""
    result = {**environ, **(changes or {})}
    return {name: value for name, value in result.items() if value is not None}


def quoted(text: str) -> str:
    """Return a text as JSON, for messages."""
    return msgspec.json.encode(text).decode()
