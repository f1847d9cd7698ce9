"""Known-safe commands: which run without approval, and every way in which they could do more."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from treadle.shell.safe import is_known_safe

SAFE: Final = [
    *("ls", "ls -la src", "cat a b", "head -n 5 a", "tail -f a", "wc -l a", "nl -ba a", "stat a"),
    *("pwd", "echo hi", "true", "false", ":", "id", "whoami", "uname -a", "which ls", "cd src"),
    *("grep -rn foo .", "rg foo src", "rg --files", "rg -n -g '*.py' foo", "rg -ez foo"),
    *("find .", "find . -name '*.py' -type f", "sed -n 1,5p a", "sed -n '$p' a", "sed -n 3p"),
    *("git status", "git log --oneline -5", "git diff HEAD~1", "git show HEAD^", "git -p log"),
    *("git branch", "git branch -a", "git branch --show-current", "git branch --list 'x*'"),
    *("git --no-pager diff", "git remote -v", "git rev-parse HEAD", "git ls-files", "git grep x"),
    *("sort a", "sort -k2 -t, a", "uniq -c", "uniq a", "tree -L 2", "date +%F", "date -u"),
    *(
        "test -f a",
        "[ -f a ]",
        "printf '%s' a",
        "base64 a",
        "diff a b",
        "command -v ls",
        "hostname",
    ),
    # Joined
    *(
        "ls && cat a",
        "ls; pwd",
        "cat a | sort | uniq -c | head -5",
        "ls || true",
        "ls\npwd",
        "! ls",
    ),
    *("(ls; pwd)", "{ ls; }", "ls & pwd", "ls # a comment; rm b", "# a comment\nls"),
    # Quoted and expanded, where any argument is harmless
    *("cat 'a b'", r"cat a\ b", "cat $HOME/a", 'cat "$x"', "cat *.py", "ls ~/a", "cat {a,b}"),
    *("echo $'a\\tb'", "echo $((1 + 2))", "rg foo src/*.py", "echo '$(rm a)'", "echo 'a; rm b'"),
    # Substitutions of safe commands
    *(
        "cat $(ls)",
        'echo "$(git status)"',
        "echo `pwd`",
        "diff <(ls a) <(ls b)",
        "cat $(cat $(ls))",
    ),
    # Redirections that write nothing
    *("ls 2>&1", "ls >/dev/null", "ls > /dev/null 2>&1", "ls 2>/dev/null", "cat < a", "ls >&-"),
    *("cat <<E\ntext\nE", "cat <<'E'\n$(rm a)\nE", "cat <<E\n$(ls)\nE", "cat <<< text"),
    # Shells inside, and programs by their path
    *("bash -c ls", "sh -c 'ls && pwd'", "bash -lc 'cat a | wc'", "/bin/ls", "/usr/bin/git status"),
]

UNSAFE: Final = [
    *("", "rm a", "touch a", "mv a b", "npm test", "python3 -c 1", "xargs cat", "tee a", "env ls"),
    *(
        "sudo ls",
        "time ls",
        "eval ls",
        "exec ls",
        ". a",
        "source a",
        "alias ls=rm",
        "curl x",
        "awk 1",
    ),
    # One option makes the difference
    *("rg --pre cat x", "rg --pre=cat x", "rg -nz x", "rg --search-zip x", "rg --hostname-bin a x"),
    *("rg -e -- --pre=cat x", "find . -exec ls {} +", "find . -execdir ls", "find . -delete"),
    *("find . -ok ls", "find . -fprint a", "find . -fprintf a b", "find . -fls a"),
    *(
        "sed -i 1p a",
        "sed 1p a",
        "sed -n 1w a",
        "sed -n '1p;1w b' a",
        "sed -n 1p a b",
        "sed -n 1p -i",
    ),
    *("git diff --output=a", "git diff --outp=a", "git log --ext-diff", "git show --textconv"),
    *("git grep -O x", "git grep --open-files-in-pager=a x", "git -c core.pager=a log"),
    *("git -C /opt status", "git --git-dir=a status", "git --exec-path=a status", "git fetch"),
    *(
        "git branch new",
        "git branch -d a",
        "git branch -D a",
        "git branch -m a b",
        "git remote add a b",
    ),
    *("git commit", "git push", "git checkout .", "git stash", "git config -l", "git"),
    *("sort -o b a", "sort -ob a", "sort --outp=b a", "sort --compress-program=x a", "uniq a b"),
    *("uniq a*", "base64 -o b a", "tree -o b", "tree -R", "date -s now", "date 01010000"),
    *(
        "hostname new",
        "printf -v PATH x",
        "command ls",
        "test -v 'a[$(rm b)]'",
        "[ -v 'a[$(rm b)]' ]",
    ),
    *("[ -f a", "diff -l a b"),
    # An unknown word may be an option
    *(
        "rg $x",
        "find . $(ls)",
        "git diff $x",
        "sort *",
        "git log `ls`",
        "sed -n $x a",
        "rg -{a,z} x",
    ),
    # The name itself is not known
    *(
        "$x",
        "$(echo ls)",
        "l*",
        "./ls",
        "/opt/ls",
        "bin/ls",
        "~/ls",
        "./bash -c ls",
        "/opt/sh -c ls",
    ),
    # Assignments change what names mean
    *("PATH=. ls", "PATH=.; ls", "x=1", "LD_PRELOAD=a ls", "for PATH in .; do ls; done"),
    *("ls() { rm a; }; ls", "export PATH=.", "cd a && git status", "cd a; /usr/bin/git log"),
    # One bad part
    *("ls && rm a", "ls; rm a", "ls | rm a", "ls || rm a", "ls & rm a", "ls\nrm a", "(rm a)"),
    *(
        "{ rm a; }",
        "! rm a",
        "if ls; then ls; fi",
        "while ls; do ls; done",
        "case a in a) ls;; esac",
    ),
    *("cat $(rm a)", 'echo "$(rm a)"', "echo `rm a`", "cat <(rm a)", "cat <<E\n$(rm a)\nE"),
    *(
        "cat <<E\n`rm a`\nE",
        "cat <<< $(rm a)",
        "cat $(cat $(rm a))",
        "ls > >(rm a)",
        "bash -c 'rm a'",
        "bash -c $'ls'",
        'sh -c $"ls"',
    ),
    *("echo $((a[$(rm b)]))", "echo ${x:=$(rm a)}", "echo ${x}${y@P}", "[[ -v a ]]", "((a))"),
    # Redirections that write or connect
    *(
        "ls > a",
        "ls >> a",
        "ls >| a",
        "ls 2> a",
        "ls &> a",
        "ls >& a",
        "ls <> a",
        "> a",
        "(ls) > a",
    ),
    *("ls > $x", "ls > /dev/null/../a", "cat < /dev/tcp/h/80", "cat < $x", "ls &> /dev/null rm a"),
    # Not a script
    *(
        "ls &&",
        "ls |",
        "; ls",
        "ls;;",
        "cat 'open",
        'cat "open',
        "cat $(open",
        "ls)",
        "ls\r\n",
        "ls \x00",
    ),
    *(
        "cat <<E\nno end",
        'echo "$\\\n(rm a)"',
        "echo $\\\n(rm a)",
        "cat `# \\\n<<'E'\nrm a\nE\n`",
        "cat <<E\\\nF\n$(rm a)\nEF",
        "cat <<E\n\\\nE\necho '$(rm a)'\nE",
        "cat a<(rm b)",
        "echo $'a\\'; rm b #'",
        "cat @(a)",
        "ls *(e:'rm a':)",
    ),
]


@pytest.mark.parametrize("script", SAFE)
def test_a_command_that_only_reads_is_safe(script: str) -> None:
    assert is_known_safe(["/bin/bash", "-lc", script])


@pytest.mark.parametrize("script", UNSAFE)
def test_a_command_that_might_do_more_is_not_safe(script: str) -> None:
    assert not is_known_safe(["/bin/bash", "-lc", script])


@pytest.mark.parametrize(
    ("argv", "is_safe"),
    [
        (["ls", "-la"], True),
        (["echo", "$(rm a)", ";", "rm", "*"], True),
        (["rg", "*", "-z"], False),
        (["sh", "-c", "ls"], True),
        (["fish", "-c", "ls"], False),
        (["bash", "-c", "ls", "rm"], False),
        (["bash"], False),
        ([], False),
        ([""], False),
    ],
)
def test_a_command_without_a_shell_is_judged_word_by_word(argv: list[str], is_safe: bool) -> None:
    assert is_known_safe(argv) == is_safe


def test_nested_shells_are_limited() -> None:
    argv = ["ls"]
    for _ in range(9):
        argv = ["bash", "-c", " ".join(_single_quoted(word) for word in argv)]

    assert not is_known_safe(argv)


def _single_quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


# Each puts a part of a script, here written as @, into another place.
PLACES: Final = [
    *(
        "`@`",
        "$(@)",
        '"@"',
        "'@'",
        "(@)",
        "<(@)",
        "@ ",
        "echo @",
        "a@",
        "@;",
        ";@",
        "\n@",
        "@ | cat",
    ),
    *("<<E\n@\nE\n", "<<'E'\n@\nE\n", "<<<@", "# @", "#@\n", "\\@", '\\"@\\"', "\\`@\\`", "$'@'"),
    *(
        "it's @ it's",
        "$'\\'@'",
        '$"@"',
        "\\\n@",
        "$\\\n@",
        "(\\\n@)",
        "<<E\n\\\nE\n@\nE\n",
        ">/dev/null @",
        "&>/dev/null @",
        "2>&1 @",
        "x=@",
    ),
    *(
        "{ @; }",
        "'@",
        "@'",
        '"@',
        '@"',
        "@ #",
        "$@",
        "${x}@",
        "bash -c @",
        "$((@))",
        "@ && ls",
        "& @",
    ),
]


def _random_script(rng: random.Random) -> str:
    script = rng.choice(["evil", " evil ", "a>b"])
    for _ in range(rng.randint(1, 5)):
        script = rng.choice(PLACES).replace("@", script)
    return f"cat {script}"


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_safe_script_runs_nothing_else_and_writes_nothing(shell: str, tmp_path: Path) -> None:
    """Ours: random scripts that name a program; a real shell must not start it if they are safe."""
    folder, programs, mark = tmp_path / "cwd", tmp_path / "bin", tmp_path / "evil-ran"
    folder.mkdir()
    programs.mkdir()
    (folder / "a").touch()
    (programs / "evil").write_text(f"#!/bin/sh\n: > {mark}\n")
    (programs / "evil").chmod(0o755)
    for name in ("cat", "ls", "bash", "sh"):
        (programs / name).symlink_to(shutil.which(name) or os.devnull)
    rng = random.Random(2)  # noqa: S311 - repeatable, not secret

    ran = 0
    while ran < 250:
        script = _random_script(rng)
        if not is_known_safe([shell, "-c", script]):
            continue
        ran += 1
        subprocess.run(
            [shell, "-c", script],
            cwd=folder,
            env={"PATH": str(programs)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=20,
        )
        left = [path.name for path in folder.iterdir()]
        assert (script, mark.exists(), left) == (script, False, ["a"])
