"""Reads `.rules` files: prefix rules for commands, rules for hosts, and paths of programs.

The reference evaluates Starlark. This module accepts the subset that Python's parser reads: calls,
literals, variables, sums, and loops over lists. Nothing in a file is executed.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct, field

Decision = Literal["allow", "prompt", "prompt-user", "forbidden"]
"""`prompt-user`, which only an administrator sets, requires a person each time."""
Protocol = Literal["http", "https", "socks5_tcp", "socks5_udp"]

_Value: TypeAlias = "str | int | float | bool | list[_Value] | None"
_Arguments: TypeAlias = "dict[str, _Value]"

_MAX_SIZE: Final = 1_000_000
MAX_RULES: Final = _MAX_SIZE
"""The limit of a file in characters."""
# The limit in characters, of up to four bytes each.
MAX_RULE_BYTES: Final = 4 * _MAX_SIZE
_MAX_STEPS: Final = 20_000
_MAX_FAILED: Final = 100
_PROTOCOL_ALIASES: Final = {"https_connect": "https", "http-connect": "https"}
_CALLS: Final = {
    "prefix_rule": ("pattern", "decision", "match", "not_match", "justification"),
    "network_rule": ("host", "protocol", "decision", "justification"),
    "host_executable": ("name", "paths"),
}


class PrefixRule(Struct, frozen=True):
    """A decision about commands that start with a pattern of alternatives for each word."""

    pattern: tuple[tuple[str, ...], ...]
    decision: Decision
    justification: str | None
    source: str

    def matches(self, argv: Sequence[str]) -> bool:
        """Whether a command starts with the pattern."""
        return len(argv) >= len(self.pattern) and all(
            word in alternatives for word, alternatives in zip(argv, self.pattern, strict=False)
        )


class NetworkRule(Struct, frozen=True):
    """A decision about one host."""

    host: str
    protocol: Protocol
    decision: Decision
    justification: str | None
    source: str


class RuleFile(Struct):
    """The rules of one file, and warnings about the rest."""

    prefixes: list[PrefixRule] = field(default_factory=list)
    networks: list[NetworkRule] = field(default_factory=list)
    executables: dict[str, frozenset[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    # Why the rest of the file is not known; it may contain rules that restrict commands.
    unread: str | None = None

    def mark_unread(self, reason: str) -> None:
        """Record why the file may contain more rules than were read."""
        self.unread = reason


def read_rules(text: str, path: str) -> RuleFile:
    """Parse the text of a file; an invalid statement becomes a warning and is skipped."""
    reader = _Reader(path)
    if len(text) > _MAX_SIZE:
        reader.give_up("the file is too long")
        return reader.file
    try:
        for statement in _statements(text, reader):
            reader.run(statement)
    except _TooMuch:
        reader.give_up("the file takes too many steps")
    return reader.file


def normal_host(host: str) -> str:
    """Return the canonical form of a host in a rule, which may be followed by a port.

    Raises:
        ValueError: it is not the name or address of one host.
    """
    from treadle.sandbox.network.hosts import normal  # imported late: few files have host rules

    text = host.strip().lower()
    if "://" in text or "/" in text:
        raise ValueError("host must be a hostname or IP literal (without scheme or path)")
    if "*" in text:
        raise ValueError("host must be a specific host; wildcards are not allowed")
    if re.search(r"\s", text):
        raise ValueError("host cannot contain whitespace")
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    if not text.rstrip("."):
        raise ValueError("host cannot be empty")
    return normal(text)


class _TooMuch(Exception):
    pass


def _statements(text: str, reader: _Reader) -> Iterator[ast.stmt]:
    """The statements of a file, without those that cannot be parsed."""
    try:
        yield from _parse(text, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        failed = 0
        for offset, chunk in _chunks(text):
            if failed == _MAX_FAILED:
                reader.give_up("too many parse errors; the rest of the file is ignored", offset + 1)
                return
            try:
                statements = _parse(chunk, offset)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                line = (error.lineno or 1) if isinstance(error, SyntaxError) else 1
                failed += 1
                reader.warn(offset + line, f"cannot be parsed: {getattr(error, 'msg', error)}")
            else:
                yield from statements


def _parse(text: str, offset: int) -> list[ast.stmt]:
    with warnings.catch_warnings():
        # Do not print Python's warnings about a rules file.
        warnings.simplefilter("ignore")
        module = ast.parse(text)
    return [ast.increment_lineno(statement, offset) for statement in module.body]


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    """Chunks that start at a line with a letter, each with the number of lines before it."""
    lines = text.split("\n")
    starts = [at for at, line in enumerate(lines) if at == 0 or line[:1].isalpha()]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield start, "\n".join(lines[start:end])


class _Reader:
    """Evaluates the statements of one file."""

    def __init__(self, path: str) -> None:
        self.file = RuleFile()
        self._path = path
        self._name = PurePosixPath(path).name
        self._names: dict[str, _Value] = {}
        self._steps = 0

    def warn(self, line: int, text: str) -> None:
        self.file.warnings.append(f"{self._path}:{line}: {text}")

    def give_up(self, reason: str, line: int = 1) -> None:
        """Mark the file as one that may contain more rules."""
        self.warn(line, reason)
        self.file.mark_unread(f"the rules in {self._path} cannot be read: {reason}")

    def run(self, statement: ast.stmt) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _TooMuch
        try:
            self._run(statement)
        except (ValueError, RecursionError) as error:
            self.warn(statement.lineno, str(error))

    def _run(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Expr(value=ast.Call() as call):
                self._call(call)
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._names[name] = self._evaluate(value)
            case ast.For(target=ast.Name(id=name), iter=values, orelse=[]):
                for each in _list(self._evaluate(values), "the iterable of a loop"):
                    self._names[name] = each
                    for inner in statement.body:
                        self.run(inner)
            case _:
                raise ValueError("unsupported statement: expected a rule, an assignment or a loop")

    def _evaluate(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(value=str() | int() | float() | None as value):
                return value
            case ast.List(elts=elements):
                return [self._evaluate(element) for element in elements]
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.Name(id=name):
                raise ValueError(f"undefined name {name!r}")
            case ast.BinOp(op=ast.Add()):
                return _add(self._evaluate(node.left), self._evaluate(node.right))
            case _:
                raise ValueError("unsupported value: expected a string, a list or a name")

    def _call(self, call: ast.Call) -> None:
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name not in _CALLS:
            raise ValueError(f"unknown function {name!r}" if name else "only rules can be called")
        arguments = self._arguments(call, name)
        source = f"{self._name}:{call.lineno}"
        if name == "prefix_rule":
            self._add_prefix(arguments, source, call.lineno)
        elif name == "network_rule":
            self.file.networks.append(_network_rule(arguments, source))
        else:
            program, paths = _host_executable(arguments)
            self.file.executables[program] = paths

    def _arguments(self, call: ast.Call, name: str) -> _Arguments:
        known = _CALLS[name]
        if len(call.args) > len(known):
            raise ValueError(f"too many arguments for {name}")
        arguments: _Arguments = {
            key: self._evaluate(value) for key, value in zip(known, call.args, strict=False)
        }
        for keyword in call.keywords:
            if keyword.arg not in known or keyword.arg in arguments:
                raise ValueError(f"unexpected argument {keyword.arg!r} for {name}")
            arguments[keyword.arg] = self._evaluate(keyword.value)
        return arguments

    def _add_prefix(self, arguments: _Arguments, source: str, line: int) -> None:
        rule = _prefix_rule(arguments, source)
        problems = _example_problems(rule, arguments)
        for problem in problems:
            self.warn(line, problem)
        # A rule that fails its own examples may be wider than intended. A restricting rule is kept
        # anyway: without it, more would be allowed.
        if not problems or rule.decision != "allow":
            self.file.prefixes.append(rule)


def _add(left: _Value, right: _Value) -> _Value:
    if isinstance(left, str) and isinstance(right, str) and len(left) + len(right) < _MAX_SIZE:
        return left + right
    if isinstance(left, list) and isinstance(right, list) and len(left) + len(right) < _MAX_STEPS:
        return [*left, *right]
    raise ValueError("only two strings or two lists can be added")


def _prefix_rule(arguments: _Arguments, source: str) -> PrefixRule:
    elements = _list(arguments.get("pattern"), "pattern")
    if not elements:
        raise ValueError("invalid pattern element: pattern cannot be empty")
    return PrefixRule(
        pattern=tuple(_alternatives(element) for element in elements),
        decision=_decision(arguments.get("decision", "allow")),
        justification=_justification(arguments),
        source=source,
    )


def _alternatives(element: _Value) -> tuple[str, ...]:
    if isinstance(element, str):
        return (element,)
    if element == []:
        raise ValueError("invalid pattern element: pattern alternatives cannot be empty")
    return tuple(_text(each, "pattern element") for each in _list(element, "pattern element"))


def _network_rule(arguments: _Arguments, source: str) -> NetworkRule:
    protocol = _text(arguments.get("protocol"), "protocol").strip().lower()
    protocol = _PROTOCOL_ALIASES.get(protocol, protocol)
    if protocol not in get_args(Protocol):
        expected = ", ".join(get_args(Protocol))
        raise ValueError(f"protocol must be one of {expected} (got {protocol})")
    decision = _text(arguments.get("decision"), "decision")
    return NetworkRule(
        host=normal_host(_text(arguments.get("host"), "host")),
        protocol=next(each for each in _PROTOCOLS if each == protocol),
        decision="forbidden" if decision == "deny" else _decision(decision),
        justification=_justification(arguments),
        source=source,
    )


_PROTOCOLS: Final[tuple[Protocol, ...]] = get_args(Protocol)
_DECISIONS: Final[tuple[Decision, ...]] = ("allow", "prompt", "forbidden")


def _host_executable(arguments: _Arguments) -> tuple[str, frozenset[str]]:
    name = _text(arguments.get("name"), "name")
    if not name or "/" in name:
        raise ValueError(f"name must be a bare executable name (got {name})")
    paths = [_text(path, "path") for path in _list(arguments.get("paths"), "paths")]
    for path in paths:
        if not path.startswith("/"):
            raise ValueError(f"paths must be absolute (got {path})")
        if PurePosixPath(path).name != name:
            raise ValueError(f"path {path!r} must have basename {name!r}")
    return name, frozenset(paths)


def _example_problems(rule: PrefixRule, arguments: _Arguments) -> list[str]:
    positive = _list(arguments.get("match") or [], "match")
    negative = _list(arguments.get("not_match") or [], "not_match")
    return [
        *(
            f"the rule does not match its example {example!r}"
            for example in positive
            if not rule.matches(_example(example))
        ),
        *(
            f"the rule matches {example!r}, which it should not"
            for example in negative
            if rule.matches(_example(example))
        ),
    ]


def _example(value: _Value) -> list[str]:
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            return []
    return [_text(each, "example") for each in _list(value, "example")]


def _decision(value: _Value) -> Decision:
    for decision in _DECISIONS:
        if value == decision:
            return decision
    raise ValueError(f"invalid decision: {value}")


def _justification(arguments: _Arguments) -> str | None:
    value = arguments.get("justification")
    if value is None:
        return None
    text = _text(value, "justification")
    if not text.strip():
        raise ValueError("justification cannot be empty")
    return text


def _text(value: _Value, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a string")  # noqa: TRY004 - becomes a warning
    return value


def _list(value: _Value, what: str) -> list[_Value]:
    if not isinstance(value, list):
        raise ValueError(f"{what} must be a list")  # noqa: TRY004 - becomes a warning
    return value
