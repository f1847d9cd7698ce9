"""Scripts as another parser of bash reads them: tree-sitter's grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_PARSER: Final = Parser(Language(tree_sitter_bash.language()))

# What this project's parser never accepts.
REFUSED: Final = frozenset("function_definition case_statement c_style_for_statement array".split())
CONTROL: Final = frozenset("if_statement while_statement for_statement".split())
# Commands for which the grammar has rules of their own.
_SPECIAL: Final = frozenset("test_command declaration_command unset_command".split())
_SUBSTITUTIONS: Final = frozenset("command_substitution process_substitution".split())
_UNKNOWN: Final = frozenset(
    """
    simple_expansion expansion command_substitution process_substitution arithmetic_expansion
    brace_expression ansi_c_string translated_string extglob_pattern regex
    """.split()
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the grammar finds in a script.

    A word is None if it expands. `kinds` are the kinds of all nodes in the tree.
    """

    commands: list[list[str | None]]
    redirections: int
    kinds: frozenset[str]
    has_special: bool

    @property
    def has_assignments(self) -> bool:
        return "variable_assignment" in self.kinds


def read(script: str) -> Reading | None:
    """Read a script; None if the grammar finds an error in it."""
    source = script.encode()
    root = _PARSER.parse(source).root_node
    if root.has_error:
        return None
    nodes = list(_walk(root))
    strays = _strays(nodes)
    redirections = [node for node in nodes if node.type.endswith("_redirect")]
    return Reading(
        [_words(node, strays.get(node.id, ())) for node in nodes if node.type == "command"],
        len(redirections),
        frozenset(node.type for node in nodes),
        any(node.type in _SPECIAL or _is_headless(node) for node in nodes),
    )


def _is_headless(node: Node) -> bool:
    """Do redirections come first? The words that follow are taken for their targets."""
    return node.type == "redirected_statement" and node.child_by_field_name("body") is None


def _walk(root: Node, without: frozenset[str] = frozenset()) -> Iterator[Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(each for each in reversed(node.children) if each.type not in without)


def _words(command: Node, strays: Sequence[Node]) -> list[str | None]:
    name = command.child_by_field_name("name")
    first = [] if name is None else [_text(name.children[0])]
    rest = [*command.children_by_field_name("argument"), *strays]
    return [*first, *map(_text, rest)]


def _strays(nodes: Sequence[Node]) -> dict[int, list[Node]]:
    """The words behind redirections, which the grammar takes for more targets, by command."""
    found: dict[int, list[Node]] = {}
    for node in nodes:
        if not node.type.endswith("_redirect") or node.parent is None:
            continue
        # What is redirected may be a list, of which the last command is meant.
        body = node.parent.child_by_field_name("body") or node.parent
        last = [each for each in _walk(body, _SUBSTITUTIONS) if each.type == "command"][-1:]
        more = [
            *node.children_by_field_name("destination")[1:],
            *node.children_by_field_name("argument"),
        ]
        for command in last:
            found.setdefault(command.id, []).extend(more)
    return found


def _text(node: Node) -> str | None:
    """The value of a word, without its quotes; None if it expands."""
    raw = (node.text or b"").decode()
    if any(each.type in _UNKNOWN for each in _walk(node)):
        return None
    match node.type:
        case "raw_string":
            return raw[1:-1]
        case "string":
            return re.sub(r'\\([$`"\\]|\n)', _unescape, raw[1:-1], flags=re.DOTALL)
        case "concatenation":
            parts = [_text(child) for child in node.children]
            return None if None in parts else "".join(part or "" for part in parts)
        case _:
            return re.sub(r"\\(.)", _unescape, raw, flags=re.DOTALL)


def _unescape(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]
