"""The names under which the model knows the tools of MCP servers: `mcp__server__tool`."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

MAX_NAME: Final = 64
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MARK: Final = 12


def model_names(tools: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Give each `(server, tool)` a name that providers accept and no other tool has.

    A tool keeps its name whatever else is offered, unless two would have the same: then both are
    marked, so that neither is mistaken for what the other was called before.
    """
    plain = {pair: _plain(*pair) for pair in sorted(set(tools))}
    counts = Counter(plain.values())
    return {
        name if counts[name] == 1 and len(name) <= MAX_NAME else _marked(name, pair): pair
        for pair, name in plain.items()
    }


def is_of(name: str, server: str) -> bool:
    """Whether a name may be that of a tool of this server, which has not said what it has."""
    return name.startswith(_plain(server, "")[: MAX_NAME - _MARK - 1])


def _plain(server: str, tool: str) -> str:
    return _FOREIGN.sub("_", f"mcp__{server}__{tool}")


def _marked(name: str, pair: tuple[str, str]) -> str:
    mark = hashlib.sha256("\0".join(pair).encode()).hexdigest()[:_MARK]
    return f"{name[: MAX_NAME - _MARK - 1]}_{mark}"
