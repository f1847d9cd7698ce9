"""Appends rules to a `.rules` file: atomically, without duplicates, one writer at a time."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from treadle.engine.commands.rule_file import (
    MAX_RULE_BYTES,
    MAX_RULES,
    Protocol,
    RuleFile,
    normal_host,
    read_rules,
)
from treadle.protocol.network import NetworkPolicyAmendment
from treadle.support.files.folder_lock import locked
from treadle.support.files.reading import read_whole
from treadle.support.files.writing import make_folders, replace_file, rewrite_file, sync_folder


def append_rule(path: Path, pattern: Sequence[str]) -> None:
    """Add a rule that allows commands with this prefix, unless the file has it.

    Raises:
        ValueError: the pattern is empty.
        OSError: the file cannot be read or written.
    """
    if not pattern:
        raise ValueError("a rule needs a pattern")
    words = tuple((word,) for word in pattern)
    _append(
        path,
        f'prefix_rule(pattern={_literal(list(pattern))}, decision="allow")',
        lambda file: any(
            (rule.pattern, rule.decision) == (words, "allow") for rule in file.prefixes
        ),
    )


def append_network_rule(
    path: Path, amendment: NetworkPolicyAmendment, protocol: Protocol = "https"
) -> None:
    """Add a rule about a host, unless the file has it.

    Raises:
        ValueError: the host is not the name or address of one host.
        OSError: the file cannot be read or written.
    """
    host = normal_host(amendment.host)
    verb = "Allow" if amendment.action == "allow" else "Deny"
    # The reference's text, which users may search for.
    reason = f"{verb} {'https_connect' if protocol == 'https' else protocol} access to {host}"
    decision = "allow" if amendment.action == "allow" else "forbidden"
    key = (host, protocol, decision)
    _append(
        path,
        f"network_rule(host={_literal(host)}, protocol={_literal(protocol)}, "
        f"decision={_literal(amendment.action)}, justification={_literal(reason)})",
        lambda file: any(
            (rule.host, rule.protocol, rule.decision) == key for rule in file.networks
        ),
    )


def _literal(value: str | list[str]) -> str:
    """The value as a literal of both Starlark and Python."""
    return json.dumps(value, ensure_ascii=False)


def _append(path: Path, line: str, is_there: Callable[[RuleFile], bool]) -> None:
    # Follow a link: users keep such files elsewhere and link to them.
    is_linked = path.is_symlink() or path.parent.is_symlink()
    path = path.resolve()
    for folder in make_folders(path.parent)[1:]:
        sync_folder(folder)
    with locked(path.parent):
        text = read_whole(path, MAX_RULE_BYTES) if path.exists() else b""
        if is_there(read_rules(text.decode(errors="replace"), path.name)):
            return
        separator = b"" if not text or text.endswith(b"\n") else b"\n"
        content = text + separator + line.encode(errors="surrogateescape") + b"\n"
        # A longer file is not read, and every command would require approval.
        if len(content.decode(errors="replace")) > MAX_RULES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        if is_linked and path.exists():
            # The file may be in a workspace, where commands have it mounted.
            rewrite_file(path, content)
            return
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        replace_file(path, content, mode=mode)
