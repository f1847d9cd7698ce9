"""Reads the lists of models that providers publish."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from treadle.model.base import ModelError
from treadle.model.http.client import ProviderEndpoint
from treadle.protocol.base import JsonValue

MAX_NAMES: Final = 5_000
"""The most models of one list; the answer to a client describes each of them."""

MAX_NAME: Final = 500
"""The most characters of a name; an entry with a longer one is ignored."""

_NO_LIST: Final = (404, 405, 501)


async def listed(
    endpoint: ProviderEndpoint, path: str = "models", headers: Mapping[str, str] | None = None
) -> list[str] | None:
    """Return the model names that a provider lists, or None if it has no list.

    Raises:
        ModelError: the list cannot be fetched.
    """
    try:
        return names_of(await endpoint.get_json(path, headers))
    except ModelError as error:
        if error.http_status in _NO_LIST:
            return None
        raise


def names_of(document: JsonValue) -> list[str] | None:
    """Return the names in a `/models` response, in any of its common shapes."""
    entries = document
    if isinstance(document, dict):
        entries = document.get("data") or document.get("models")
    if not isinstance(entries, list):
        return None
    names = (_name_of(entry) for entry in entries)
    return list(islice((name for name in names if name and len(name) <= MAX_NAME), MAX_NAMES))


def _name_of(entry: JsonValue) -> str | None:
    if isinstance(entry, dict):
        entry = entry.get("id") or entry.get("slug") or entry.get("name")
    return entry if isinstance(entry, str) else None
