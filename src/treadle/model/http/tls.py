"""The certificate authorities for providers: the system's, and those of an environment variable."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from treadle.model.base import ModelError

# The first one that is set wins.
CA_VARIABLES: Final = ("CODEX_CA_CERTIFICATE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")

_MAX_KEPT: Final = 4
# The identity of the file, and what changes with its content.
_Stamp: TypeAlias = tuple[int, int, int, int]


async def tls_context(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the system's authorities and those of the environment variable, if set.

    Raises:
        ModelError: the file cannot be read, or contains no certificates.
    """
    for variable in CA_VARIABLES:
        path = environ.get(variable)
        if path:
            try:
                # Off the loop: reading all authorities of a system takes up to 200 ms.
                return await asyncio.to_thread(_load, path)
            except OSError as error:
                raise ModelError(f"{variable}: no certificates in {path!r}: {error}") from error
    return None


def _load(path: str) -> ssl.SSLContext:
    found = os.stat(path)  # noqa: PTH116 - as ssl understands the path
    return _loaded(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=_MAX_KEPT)
def _loaded(path: str, _stamp: _Stamp) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=path)
    return context
