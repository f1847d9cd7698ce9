"""The text of `.rules` files: what is taken, and what costs a warning and nothing else."""

from __future__ import annotations

import pytest

from treadle.engine.commands.rule_file import NetworkRule, PrefixRule, RuleFile, read_rules


def prefixes(text: str) -> list[tuple[str, ...]]:
    file = read_rules(text, "x.rules")
    assert file.warnings == []
    return [tuple("|".join(each) for each in rule.pattern) for rule in file.prefixes]


def test_a_file_is_read_whole() -> None:
    text = """
'''What may run.'''
safe = ["status", "log"]  # for git
prefix_rule(
    pattern = ["git", safe],
    match = ["git status", ["git", "log", "-p"]],
    not_match = ["git push"],
)
prefix_rule(["rm"], "forbidden", ["rm a"], ["ls"], "use trash")
network_rule(host="Example.com", protocol="https_connect", decision="deny")
host_executable(name="git", paths=["/usr/bin/git"])
"""

    assert read_rules(text, "/a/x.rules") == RuleFile(
        prefixes=[
            PrefixRule((("git",), ("status", "log")), "allow", None, "x.rules:4"),
            PrefixRule((("rm",),), "forbidden", "use trash", "x.rules:9"),
        ],
        networks=[NetworkRule("example.com", "https", "forbidden", None, "x.rules:10")],
        executables={"git": frozenset({"/usr/bin/git"})},
        warnings=[],
    )


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ('x = "a"\nprefix_rule(pattern=[x, "b" + "c"])', [("a", "bc")]),
        ('a = ["x", "y"]\nprefix_rule(pattern=["p"] + [a])', [("p", "x|y")]),
        ('for c in ["a", "b"]:\n  prefix_rule(pattern=[c])', [("a",), ("b",)]),
        ("prefix_rule(pattern=[r'\\d', 'b'])", [("\\d", "b")]),
        ('prefix_rule(pattern=["\\d"])', [("\\d",)]),
        ('prefix_rule(pattern=["a b"])', [("a b",)]),
        ("", []),
        ("# nothing\n", []),
    ],
)
def test_names_sums_and_loops_are_understood(text: str, patterns: list[tuple[str, ...]]) -> None:
    assert prefixes(text) == patterns


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ('prefix_rule(pattern=["a"], decision="deny")', "invalid decision: deny"),
        ("prefix_rule(pattern=[])", "invalid pattern element: pattern cannot be empty"),
        (
            "prefix_rule(pattern=[[]])",
            "invalid pattern element: pattern alternatives cannot be empty",
        ),
        ('prefix_rule(pattern="a")', "pattern must be a list"),
        ('prefix_rule(pattern=("a",))', "unsupported value: expected a string, a list or a name"),
        ("prefix_rule(pattern=[1])", "pattern element must be a list"),
        ("prefix_rule()", "pattern must be a list"),
        ('prefix_rule(pattern=["a"], foo=1)', "unexpected argument 'foo' for prefix_rule"),
        ('prefix_rule(["a"], pattern=["b"])', "unexpected argument 'pattern' for prefix_rule"),
        ('prefix_rule(**{"pattern": []})', "unexpected argument None for prefix_rule"),
        ('prefix_rule(pattern=["a"], justification=" ")', "justification cannot be empty"),
        ('prefix_rule(pattern=["a"], match=["b"])', "the rule does not match its example 'b'"),
        (
            'prefix_rule(pattern=["a"], match=["a \'"])',
            'the rule does not match its example "a \'"',
        ),
        (
            'prefix_rule(pattern=["a"], not_match=["a b"])',
            "the rule matches 'a b', which it should not",
        ),
        ("prefix_rule(pattern=[x])", "undefined name 'x'"),
        ("print('x')", "unknown function 'print'"),
        ("__import__('os').system('ls')", "only rules can be called"),
        ("x = __import__('os')", "unsupported value: expected a string, a list or a name"),
        ("import os", "unsupported statement: expected a rule, an assignment or a loop"),
        ("x = ['a'] * 10**9", "unsupported value: expected a string, a list or a name"),
        ("x = 'a' + ['b']", "only two strings or two lists can be added"),
        (
            'network_rule(host="a", protocol="tcp", decision="allow")',
            "protocol must be one of http, https, socks5_tcp, socks5_udp (got tcp)",
        ),
        (
            'network_rule(host="*.a", protocol="http", decision="allow")',
            "host must be a specific host; wildcards are not allowed",
        ),
        ('network_rule(host="a", protocol="http")', "decision must be a string"),
        ('network_rule(host="", protocol="http", decision="allow")', "host cannot be empty"),
        (
            'network_rule(host="http://a", protocol="http", decision="allow")',
            "host must be a hostname or IP literal (without scheme or path)",
        ),
        ('host_executable(name="a", paths=["a"])', "paths must be absolute (got a)"),
        ('host_executable(name="a", paths=["/b"])', "path '/b' must have basename 'a'"),
        ('host_executable(name="/a", paths=[])', "name must be a bare executable name (got /a)"),
    ],
)
def test_an_error_is_reported_with_its_line_and_the_other_rules_apply(
    text: str, warning: str
) -> None:
    around = 'prefix_rule(pattern=["before"])\n{}\nprefix_rule(pattern=["after"])\n'

    file = read_rules(around.format(text), "/r/x.rules")

    assert [rule.pattern for rule in file.prefixes] == [(("before",),), (("after",),)]
    assert file.warnings == [f"/r/x.rules:2: {warning}"]


def test_a_syntax_error_leaves_the_other_rules_in_force() -> None:
    file = read_rules(
        'prefix_rule(pattern=["a"])\nprefix_rule(pattern=["b"\n\n# c\nprefix_rule(\n  ["d"],\n)\n',
        "x.rules",
    )

    assert [rule.source for rule in file.prefixes] == ["x.rules:1", "x.rules:5"]
    assert [warning.split(" parsed")[0] for warning in file.warnings] == ["x.rules:2: cannot be"]


def test_a_restriction_that_fails_its_examples_is_kept() -> None:
    """Ours: a rule that allows is dropped then, for it may be wider than was meant."""
    text = 'prefix_rule(pattern=["a"], decision="{}", match=["b"])'

    kept = {
        decision: bool(read_rules(text.format(decision), "x.rules").prefixes)
        for decision in ("allow", "prompt", "forbidden")
    }

    assert kept == {"allow": False, "prompt": True, "forbidden": True}


def test_a_file_that_takes_too_long_is_abandoned() -> None:
    numbers = "[" + "'a'," * 300 + "]"
    text = f"n = {numbers}\nfor a in n:\n for b in n:\n  for c in n:\n   prefix_rule([a])\n"

    assert read_rules(text, "x.rules").warnings == ["x.rules:1: the file takes too many steps"]


@pytest.mark.parametrize(
    "text", ["\x00", "(" * 10_000, "[" * 300 + "]" * 300, "\\", "a" * 2_000_000]
)
def test_no_text_makes_reading_fail(text: str) -> None:
    assert read_rules(text, "x.rules").prefixes == []


def test_a_file_that_is_not_a_rules_file_is_abandoned() -> None:
    """Each piece costs a parse and a warning, and a file of a megabyte may have 300,000."""
    warnings = read_rules("a b\n" * 250_000, "default.rules").warnings

    assert len(warnings) == 101
    assert warnings[-1].endswith("too many parse errors; the rest of the file is ignored")
