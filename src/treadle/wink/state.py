"""The thread that a session remembers, and whether it can be resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from treadle.protocol.base import JsonValue
from treadle.protocol.tool import FunctionDynamicToolSpec


@dataclass(frozen=True, slots=True)
class CodexAppServerSessionState:
    """The thread of a session, and the environment in which it was started."""

    thread_id: str
    cwd: str
    workspace_fingerprint: str | None
    tools_fingerprint: str | None = None

    def fits(self, other: CodexAppServerSessionState) -> bool:
        """Return whether a thread of this environment can be resumed in the other one."""
        mine = (self.cwd, self.workspace_fingerprint, self.tools_fingerprint)
        return mine == (other.cwd, other.workspace_fingerprint, other.tools_fingerprint)


def tools_fingerprint(specs: Sequence[FunctionDynamicToolSpec]) -> str:
    """Return a digest of a set of tools; a thread keeps the tools that it was started with."""
    documents: list[JsonValue] = [msgspec.to_builtins(spec) for spec in specs]
    documents.sort(key=lambda document: str(document["name"]))
    text = msgspec.json.encode(documents, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]
