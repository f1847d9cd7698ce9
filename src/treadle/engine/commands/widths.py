"""Detects prefixes that would allow nearly every command, and are never proposed as rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.shell.scripts import program_name

# The rest of the line runs as another user.
_NEVER: Final = frozenset("doas pkexec su sudo".split())

_INTERPRETERS: Final = frozenset(
    """
    bash bun cmd dash deno fish ksh lua node osascript perl php powershell pwsh py pypy pypy3 python
    python2 python3 pythonw ruby sh zsh
    """.split()
)

# The reference proposes some of these, though each can start any program.
_STARTERS: Final = frozenset(
    """
    awk builtin busybox command env eval exec find git nice nohup npm npx parallel rm sed
    setsid ssh stdbuf time timeout uv uvx watch xargs
    """.split()
)

_PAIRS: Final = frozenset(
    {("git", "-C"), ("git", "-c"), ("npm", "exec"), ("npm", "run"), ("uv", "run")}
)


def is_too_wide(prefix: Sequence[str]) -> bool:
    """Whether a rule for this prefix would allow any program."""
    if not prefix:
        return True
    name = program_name(prefix[0])
    if name in _NEVER:
        return True
    is_interpreter = name in _INTERPRETERS or name.startswith("python3.")
    if len(prefix) == 1:
        return is_interpreter or name in _STARTERS
    if len(prefix) > 2:
        return False
    return (is_interpreter and prefix[1].startswith("-")) or (name, prefix[1]) in _PAIRS
