"""No regular expression in Treadle takes more than linear time on text that others choose.

Every call of `re` in the sources is found, and its expression is checked for the signs that
`tests/harness/patterns.py` knows. An expression that is built at run time cannot be checked.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import treadle
from tests.harness.patterns import ANCHORED, sign

SOURCES: Final = Path(treadle.__file__).parent
CALLS: Final = frozenset("compile search match fullmatch split findall finditer sub subn".split())

# Expressions with a sign, by file and name, and why each is safe.
SAFE: Final = {
    "client/_runtime/output.py _FENCE": "each fence ends the one before; only the last has no end",
    "engine/commands/guesses.py _pattern": "made of names, a slash and blanks, which share nothing",
    "engine/commands/unclear.py _PIECE": "reads texts with at most 8 brackets (_MAX_WILD)",
    "engine/commands/unclear.py _pattern": "has at most 8 wildcards, and reads names of rules",
    "engine/hooks/hook.py matching": "written by the user, who trusted it; reads names of tools",
    "engine/tools/tool_search.py _WORD": "gives back one letter, which another branch takes",
    "model/catalog.py _TRAITS 2": "matches from the start of a name only, in `traits_of`",
    "model/catalog.py _TRAITS 3": "matches from the start of a name only, in `traits_of`",
    "model/errors.py _DURATION": "reads 100 characters (_MAX_DURATION)",
    "server/file_search/ignore_rules.py _together": "alternatives made by _rule, at one place",
    "server/file_search/ignore_rules.py _rule": "what follows a star never gives back (_regex)",
    "server/file_search/query.py _subsequence": "possessive repeats that share no letter",
    "store/rollout/item_lines.py _PART": "reads what _SHOWN has matched: each quote is closed",
    "store/rollout/item_lines.py _WORD": "reads what _SHOWN has matched: each quote is closed",
    "testing/comparing.py _VARIABLE": "reads the requests of a test of the user's own",
    "testing/redaction.py _compile": "reads the recordings of the user's own tests",
}

# Expressions that took seconds for a few kilobytes, and similar ones.
ONCE: Final = [
    (r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", 0, "fullmatch"),
    (r"\s*\[type=.*?input_value=.*|\s*For further information.*", 0, "sub"),
    (r"```(?:json)?\s*\n(.*?)```", re.DOTALL, "match"),
    (r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", 0, "findall"),
    (r"^\s*run:\s*(?P<command>\S.*)$", re.IGNORECASE | re.MULTILINE, "search"),
    (r"`+(?P<command>[^`\n]+)`+", 0, "search"),
    (r" - at `(?:key in )?\$(?P<path>.*)`$", 0, "search"),
    (r"\.([^.\[\]]+)|\[([^\]]*)\]", 0, "finditer"),
    (r"(?:[^%\\]|%(?:%|[-+ #0]*[0-9]*(?:\.[0-9]*)?[dsx]))*", 0, "fullmatch"),
    (r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL, "findall"),
    (r'"(?:\\.|[^"\\\n])*"', re.DOTALL, "findall"),
    (r"(a+)+b", 0, "match"),
    (r"(?:ab|ab)*c", 0, "match"),
    (r"(?:\\.|.)*x", 0, "match"),
    (r"a(?!.*x)", 0, "search"),
    (r"a(?:.*b)?", 0, "search"),
]
# Similar expressions that are linear.
LINEAR: Final = [
    (r"^[^\S\n]*run:[^\S\n]*(\S.*)$", re.MULTILINE, "search"),
    (r"[-+ #0]*+[0-9]*+x", 0, "fullmatch"),
    (r'"(?:\\.|[^"\\\n])*+"?+', re.DOTALL, "findall"),
    (r"(?:[ \t]+|\\\n)*", 0, "match"),
    (r"\S*\s*", 0, "findall"),
    (r"\d+(,\d+)?p", 0, "fullmatch"),
    (r"[a-z]*(\[[^\]]*\])?=", 0, "match"),
]


def expressions() -> Iterator[tuple[str, ast.Call, str, dict[str, Any]]]:
    """Yield where each call of `re` stands, the call, how it is used, and the names it can see."""
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_text())
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        methods: dict[str, set[str]] = {}
        found: list[tuple[str, ast.Call]] = []
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.ImportFrom) and node.module == "re"), path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                methods.setdefault(node.value.id, set()).add(node.attr)
                call = parents[node]
                if node.value.id == "re" and node.attr in CALLS:
                    assert isinstance(call, ast.Call), f"{path}: `re` is not called directly"
                    found.append((node.attr, call))
        name = path.relative_to(SOURCES.parent).with_suffix("").as_posix().replace("/", ".")
        known = vars(importlib.import_module(name.removesuffix(".__init__"))) if found else {}
        seen: Counter[str] = Counter()
        for method, call in found:
            owner = _owner(call, parents)
            uses = {method} if method != "compile" else methods.get(owner, set())
            is_anchored = bool(uses) and uses <= ANCHORED
            use = min(uses) if is_anchored else "search"  # `fullmatch` before `match`
            seen[owner] += 1
            number = f" {seen[owner]}" if seen[owner] > 1 else ""
            yield f"{path.relative_to(SOURCES).as_posix()} {owner}{number}", call, use, known


def _owner(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    """Return the name that an expression is assigned to, or of the function that contains it."""
    while True:
        node = parents[node]
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                if name.strip("_").isupper() or isinstance(parents[node], ast.Module):
                    return name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                return name
            case ast.Module():
                return "module"
            case _:
                pass


def judge(call: ast.Call, use: str, known: dict[str, Any]) -> str | None:
    """Return which sign a call has, if any."""
    arguments = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    flags = [arg for arg in arguments if ast.unparse(arg).startswith("re.")]
    try:
        pattern, *values = (eval(ast.unparse(arg), known) for arg in [call.args[0], *flags])  # noqa: S307 - our own source
    except NameError:
        return "made while the program runs"
    return sign(pattern, sum(values), use)


def test_no_expression_takes_more_than_linear_time() -> None:
    signs = {where: judge(call, use, known) for where, call, use, known in expressions()}
    found = {where: why for where, why in signs.items() if why is not None}
    assert {where: why for where, why in found.items() if where not in SAFE} == {}
    assert SAFE.keys() - found.keys() == set(), "no longer needed in the table"
    assert len(signs) > 90


@pytest.mark.parametrize(("pattern", "flags", "use"), ONCE)
def test_an_expression_that_was_slow_is_found(pattern: str, flags: int, use: str) -> None:
    assert sign(pattern, flags, use) is not None


@pytest.mark.parametrize(("pattern", "flags", "use"), LINEAR)
def test_an_expression_that_is_linear_is_not_found(pattern: str, flags: int, use: str) -> None:
    assert sign(pattern, flags, use) is None
