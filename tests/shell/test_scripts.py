"""Parsing scripts: which words each command gets, and which scripts are not parsed."""

from __future__ import annotations

import random
import subprocess
from typing import Final

import pytest

from treadle.shell.scripts import commands_of, display, plain_commands, script_of
from treadle.shell.syntax import parse


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (["bash", "-lc", "ls"], "ls"),
        (["/bin/bash", "-c", "ls"], "ls"),
        (["sh", "-c", ""], ""),
        (["/usr/bin/zsh", "-l", "-c", "a b"], "a b"),
        (["bash", "--norc", "-c", "ls"], "ls"),
        (["bash", "-lc"], None),
        (["bash", "ls"], None),
        (["bash", "-c", "ls", "zero"], None),
        (["bash", "-x", "-c", "ls"], None),
        (["fish", "-c", "ls"], None),
        (["python3", "-c", "ls"], None),
        ([], None),
    ],
)
def test_a_script_is_found_behind_a_shell(argv: list[str], script: str | None) -> None:
    assert script_of(argv) == script


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("ls", [["ls"]]),
        ("  ls\t-la  ", [["ls", "-la"]]),
        ("ls;pwd", [["ls"], ["pwd"]]),
        ("ls && pwd || id | wc -l; date", [["ls"], ["pwd"], ["id"], ["wc", "-l"], ["date"]]),
        ("ls\n\npwd\n", [["ls"], ["pwd"]]),
        ("ls &&\n pwd |\nwc", [["ls"], ["pwd"], ["wc"]]),
        ("ls ;\npwd;", [["ls"], ["pwd"]]),
        ("ls \\\n -la", [["ls", "-la"]]),
        ("echo 'a b' \"c d\" e'f'\"g\"", [["echo", "a b", "c d", "efg"]]),
        ("echo '' \"\"", [["echo", "", ""]]),
        ("echo 'a$b`c' \"it's\"", [["echo", "a$b`c", "it's"]]),
        (r'echo "a\nb"', [["echo", r"a\nb"]]),
        ("echo 'a\nb'", [["echo", "a\nb"]]),
        ("git commit -m 'a; b | c && d'", [["git", "commit", "-m", "a; b | c && d"]]),
        ("rg --glob='*.py' x", [["rg", "--glob=*.py", "x"]]),
        ("echo a=b -x=y % ! , é", [["echo", "a=b", "-x=y", "%", "!", ",", "é"]]),
        ("echo if done then", [["echo", "if", "done", "then"]]),
    ],
)
def test_plain_words_become_argument_vectors(script: str, commands: list[list[str]]) -> None:
    assert plain_commands(script) == commands


NOT_PLAIN: Final = [
    *("", "  ", "# only a comment", "ls # comment", "ls &", "ls & pwd", "ls |& wc", "! ls"),
    *("ls;;", ";ls", "ls\n;pwd", "&& ls", "ls &&", "ls |", "| ls", "ls; ; pwd"),
    *("echo $x", 'echo "$x"', "echo ${x}", "echo $(ls)", "echo `ls`", 'echo "`ls`"', "echo $"),
    *("echo $'a'", 'echo $"a"', "echo $((1+1))", "echo <(ls)", r"echo a\ b", r'echo "a\"b"'),
    *("ls > a", "ls >a", "ls 2>&1", "ls 2>/dev/null", "cat < a", "cat <<E\nx\nE", "cat <<< x"),
    *("ls *.py", "ls a?", "ls [ab]", "ls {a,b}", "ls ~", "ls ~/a", "git diff HEAD~1", "echo a^"),
    *("(ls)", "{ ls; }", "if ls; then pwd; fi", "for i in a; do ls; done", "while ls; do ls; done"),
    *("x=1", "x=1 ls", "export x=1", "f() { ls; }", "function f { ls; }", "[[ -f a ]]", "[ -f a ]"),
    *("case a in a) ls;; esac", "((1+1))", "coproc ls", "then", "1", "2 ls", "'ls' -la", "l's'"),
    *("echo 'open", 'echo "open', "echo `open", "echo $(open", "(ls", "ls)", "{ ls", "=ls"),
    *("ls\r\npwd", "ls \x00", "ls \x1b", "ls \x0b a", "echo @(a)", "cat <<E\nno end", "ls \\"),
]


@pytest.mark.parametrize("script", NOT_PLAIN)
def test_everything_else_is_not_plain(script: str) -> None:
    assert plain_commands(script) is None


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("echo $(cat `ls`)", [["ls"], ["cat", "`ls`"], ["echo", "$(cat `ls`)"]]),
        ('echo "a $(ls "b c")"', [["ls", "b c"], ["echo", 'a $(ls "b c")']]),
        ("(ls; pwd) > a", [["ls"], ["pwd"], []]),
        ("if ls; then pwd; else id; fi", [["ls"], ["pwd"], ["id"]]),
        ("for i in $(ls); do cat $i; done", [["ls"], ["cat", "$i"]]),
        ("cat <<E\n$(ls)\n'`id`'\nE\npwd", [["ls"], ["id"], ["cat"], ["pwd"]]),
        ("cat <<'E'\n$(ls)\nE\npwd", [["cat"], ["pwd"]]),
        ("cat <<-E | wc\n\tx\n\tE", [["cat"], ["wc"]]),
        ("diff <(ls a) <(ls b)", [["ls", "a"], ["ls", "b"], ["diff", "<()", "<()"]]),
        (r"echo \$(", None),
        ('echo "`echo \\"it\'s $(ls) it\'s\\"`"', None),
        ("echo ${x:=$(ls)}", None),
        ("echo $((x))", None),
        ("cat a<(ls)", None),
        ("cat &> a", None),
        ("echo $'a\\''", None),
    ],
)
def test_commands_are_found_wherever_they_are(
    script: str, commands: list[list[str]] | None
) -> None:
    parsed = parse(script)

    words = None if parsed is None else [[w.text for w in c.words] for c in parsed.commands]
    assert (None if words is None else sorted(words)) == (
        None if commands is None else sorted(commands)
    )


def test_unlimited_nesting_is_not_understood() -> None:
    assert parse("echo " + "$(" * 5000 + ")" * 5000) is None
    assert parse("! " * 5000 + "ls") is None
    assert parse("if " * 5000 + "ls") is None


def test_a_command_that_is_not_a_plain_script_stands_for_itself() -> None:
    assert commands_of(["bash", "-lc", "ls && pwd"]) == [["ls"], ["pwd"]]
    assert commands_of(["bash", "-lc", "ls $x"]) == [["bash", "-lc", "ls $x"]]
    assert commands_of(["touch", "a"]) == [["touch", "a"]]


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("", "''"),
        ("ls", "ls"),
        ("a]@:_+-./1", "a]@:_+-./1"),
        ("touch a", "'touch a'"),
        ("a=b", "'a=b'"),
        ("é", "'é'"),
        ("it's", '"it\'s"'),
        ("a\"b'c", '"a\\"b\'c"'),
        ("'$x'", "\"'\"'$x'\"'\""),
        ("a`b`'", "'a`b`'\"'\""),
        ("it's!", "\"it's\"'!'"),
        ("^a", "'^a'"),
        ("a^b", "a'^b'"),
        ("it's ^", "\"it's \"'^'"),
        ("back\\slash", '"back\\\\slash"'),
        ('it\'s $HOME and `x` "q" \\', '"it\'s "\'$HOME and `x` "q" \'"\\\\"'),
        ("a\nb", "'a\nb'"),
    ],
)
def test_a_word_is_shown_with_the_quotes_of_the_reference(word: str, shown: str) -> None:
    assert display(["/bin/bash", "-lc", word]) == f"/bin/bash -lc {shown}"


PIECES: Final = [
    *("a", "b", "'", '"', "\\", " ", " ", "\n", "; ", " && ", " | ", "$", "`", "#", "=", "!"),
    *("-x", "{", "}", "(", ")", "~", "*", "^", "%", "<", ">", "&", "\\\n", "é", "p ", "'a b'"),
    '"c d"',
]


def test_bash_gives_each_command_the_words_that_we_predict() -> None:
    """Ours: random scripts, each command of which is a function that reports its words."""
    rng = random.Random(11)  # noqa: S311 - repeatable, not secret
    scripts: list[str] = []
    while len(scripts) < 150:
        script = "p " + "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 9)))
        commands = plain_commands(script)
        if commands is not None and len(commands) < 4 and all(c[0] == "p" for c in commands):
            scripts.append(script)

    assert [_words_by_bash(script) for script in scripts] == [
        sorted(command[1:] for command in plain_commands(script) or []) for script in scripts
    ]


def _words_by_bash(script: str) -> list[list[str]]:
    # In one write: the commands of a pipe run at the same time.
    report = "p() { printf '%s\\037' \"$@\" x '\x1e' >&9; }\n"
    done = subprocess.run(
        ["bash", "-c", f"exec 9>&1\n{report}{script}\nwait"],
        capture_output=True,
        check=False,
        timeout=20,
        stdin=subprocess.DEVNULL,
    )
    calls = done.stdout.decode().split("\x1e\x1f")[:-1]
    return sorted(call.split("\x1f")[:-2] for call in calls)


def test_no_text_makes_the_parser_fail() -> None:
    rng = random.Random(5)  # noqa: S311 - repeatable, not secret
    for _ in range(3000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 30)))
        noise = bytes(rng.randrange(256) for _ in range(rng.randint(0, 20))).decode("latin-1")
        for script in (text, noise):
            commands = plain_commands(script)
            assert commands is None or all(commands)
            assert display(["bash", "-lc", script])
