"""The names of MCP tools for the model: `mcp__server__tool`."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

MAX_NAME: Final = 64
_INVALID: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_LENGTH: Final = 12


def model_names(tools: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Give each `(server, tool)` a unique name that providers accept.

    The name of a tool does not depend on the other tools, unless two names collide: then both get a
    hash, so that neither is mistaken for the other in older history.
    """
    plain = {pair: _plain(*pair) for pair in sorted(set(tools))}
    counts = Counter(plain.values())
    return {
        name if counts[name] == 1 and len(name) <= MAX_NAME else _with_hash(name, pair): pair
        for pair, name in plain.items()
    }


def plain_names(server: str, tool: str) -> tuple[str, ...]:
    """The names by which a user knows a tool, whatever other tools the servers have."""
    return tuple(dict.fromkeys((_plain(server, tool), f"mcp__{server}__{tool}")))


def is_of(name: str, server: str) -> bool:
    """Whether a name may belong to a tool of this server, whose tools are not known yet."""
    return name.startswith(_plain(server, "")[: MAX_NAME - _HASH_LENGTH - 1])


def _plain(server: str, tool: str) -> str:
    return _INVALID.sub("_", f"mcp__{server}__{tool}")


def _with_hash(name: str, pair: tuple[str, str]) -> str:
    digest = hashlib.sha256("\0".join(pair).encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name[: MAX_NAME - _HASH_LENGTH - 1]}_{digest}"
