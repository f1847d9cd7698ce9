"""Commands that write or start programs, disguised as read-only commands.

Each row is judged by the table. Rows that a shell of this machine can run are also run, in a
folder with tripwires, to prove that the danger is real.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.harness.model_server import calls, says
from tests.harness.questions import answer, question
from tests.harness.threads import Stage, params_of
from treadle.client._runtime.safety import only_reads
from treadle.engine.commands.rule_file import read_rules
from treadle.engine.commands.rules import Rules
from treadle.shell.safe import is_known_safe

# (shell, script, what it leaves behind; None if it needs a program that may be missing)
REAL: Final = [
    # zsh evaluates the word after a name: as a subscript, and as the argument of a modifier.
    ("zsh", "echo $#path['$(touch made)']", "made"),
    ("zsh", "echo $HOME:F:'$(touch made)':h", "made"),
    ("bash", "printf '12345%n' PATH; ls", "5/ran"),
    ("bash", "printf '%d%n' 5 PATH; ls", "1/ran"),
    ("bash", "printf -v PATH x; ls", "x/ran"),
    ("bash", "printf -vPATH x; ls", "x/ran"),
    ("bash", ": {PATH}</dev/null; ls", "10/ran"),
    ("bash", "cat <<E\n$(for PATH in x; do ls; done)\nE", "x/ran"),
    ("bash", "cat <<E\n`for PATH in x; do ls; done`\nE", "x/ran"),
    ("bash", "cat $(for PATH in x; do ls; done)", "x/ran"),
    ("bash", "test -v 'a[$(touch made)]'", "made"),
    ("bash", "[ -v 'a[$(touch made)]' ]", "made"),
    ("bash", "[ ! -v 'a[$(touch made)]' ]", "made"),
    ("bash", "uniq -- in -x/../made", "made"),
    ("bash", "uniq in made", "made"),
    ("bash", "uniq - made < in", "made"),
    ("bash", "uniq -c in made", "made"),
    ("bash", "uniq -f 1 in made", "made"),
    ("bash", "uniq in -- made", "made"),
    ("bash", "POSIXLY_CORRECT=1 uniq in -c", "-c"),
    ("bash", "sort -o made in", "made"),
    ("bash", "sort -uo made in", "made"),
    ("bash", "sort in -omade", "made"),
    ("bash", "sort --outp made in", "made"),
    ("bash", "sort -k 1 -o made in", "made"),
    ("bash", "sort -S1 --compress-prog=./tripwire in", None),
    ("bash", "diff -l in other", None),
    ("bash", "diff --pag in other", None),
    ("bash", "find . -name in -exec touch made ;", None),
    ("bash", "find in -fprintf made x", "made"),
    ("bash", "find in -fls made", "made"),
    ("bash", "find in -fprint0 made", "made"),
    ("bash", "git diff --no-index --output=made in other", "made"),
    ("bash", "git diff --no-index --output made in other", "made"),
    ("dash", "uniq in 12>/dev/null", "12"),
    ("bash", "ls >&٣", "٣"),
    # A shell joins lines before it parses operators.
    ("bash", "echo 'a[$(touch made)]'; echo $(\\\n(echo , _))", "made"),
    ("bash", "echo 'a[$(touch made)]'; (\\\n(echo , _))", "made"),
    ("bash", "echo 'a[$(touch made)]'; echo \"$(\\\n(echo , _))\"", "made"),
    ("bash", "cat <<E\n$(echo 'a[$(touch made)]' $(\\\n(echo , _)) )\nE", None),
    ("bash", "echo {PATH}\\\n</dev/null; ls", "10/ran"),
]

UNSAFE: Final = [
    line
    for line in r"""
# Tree and fd read the letters that follow as options
tree -Lo 1 made
tree -aLo 1 made
tree -L 1 -o made
tree -R -L 1 -H .
tree -omade
tree -- -o made
fd -l
fd -x rm
fd -Xrm
fd -Hx rm
fd --exec-batch=rm
# Zsh and ksh evaluate numbers
printf %d 'a[$(touch made)]'
printf '%s %d' x 'a[$(touch made)]'
printf %*d 'a[$(x)]' 1
printf '%.*f' 'a[$(x)]' 1
printf '%2$d' 1 'a[$(x)]'
printf %s%x a 'b[$(x)]'
[ 'a[$(touch made)]' -eq 0 ]
test 0 -lt 'a[$(x)]'
[ -t 'a[$(x)]' ]
[ 1 -eq x ]
[ a = b -o 'c[$(x)]' -eq 0 ]
[ ! 1 -eq 'a[$(x)]' ]
[ -o emacs ]
[ -R x ]
printf '%(%F)T' 1
printf '\x25n' PATH
printf '\45n' PATH
printf '\u0025n' PATH
printf -- %n PATH
printf '%ln' PATH
printf "%B" x
printf '%' PATH
# Zsh: subscripts, flags of expansions, groups, pagers, globs, assigned streams
echo $x[PATH=0]
echo $#path['$(touch made)']
echo $#path[PATH=0]
echo "$#path"
echo $HOME:F:'$(touch made)':h
echo "$1:F:x:h"
echo "$x[1]"
uniq a $=x
cat $~x
echo $^x
cat $+x[1]
< a
<a
cat a; < b
ls *(e:'rm a':)
ls =(rm a)
echo {PATH}</dev/null
ls 12>/dev/null
ls {a}>&1
stat -A PATH a
type -m x
# Shells with connections
cat < /dev/tcp/127.0.0.1/80
cat < /dev/udp/a/1
cat < /dev/sctp/a/1
cat < /dev/watchdog
# Unknown words, blanks and letters
sort $x a
sort "$x"
uniq $x
find $x
tree $x
date $x
sort -k $x a
uniq a*
uniq -- a*
uniq -- $x
find . -name a* -print
printf $x
test -f $x
find -name -delete
rg -e --pre x
rg -e -- --pre=x a
rg --pre-glob x --pre y
rg -iz x
LS
# Options by which one of many systems writes, runs or sets
uname -S name
date -s x
date -f a
date +%F 01010000
date -n 01010000
date -d x
base64 -o made a
base64 -io made
base64 -i a --output made
hostname -F a
hostname -s
df --sync
cat -l
grep --pager=x a
grep --filter=x a
grep --save-config=a x
seq -f %n 3
seq -f '%s' 3
rg --hostname-bin x a
rg --hyperlink-format x a
strings -T x a
stat --cached=never a
which -i
sort -T . a
sort --files0-from=a
ls --colo=auto
wc --lin a
head --line 3 a
command -p ls
command -v -x
column -z
# Git
git log --output=made
git log --show-signature
git log --format=%G?
git help log
git log --pretty='%h %+GK'
git log --format='% GS'
git branch --format='%(signature)'
git branch --sort=signature
git show --ext-diff
git diff --textconv
git log --help
git diff --no-index a b
git diff --submodule=diff
git grep --ext-grep x
git grep -nO x
git grep -Oless x
git grep --recurse-submodules x
git ls-files --recurse-submodules
git --exec-path=. log
git -c a.b=c log
git -C a log
git --bare log
git blame -S a b
git --git-dir=a log
git --work-tree=a log
git --namespace=a log
git --config-env=a=b log
git branch a
git branch -l a
git branch -a a
git branch -v a
git branch --contains a
git branch --edit-description
git branch -u a
git branch --track a
git branch -f a b
git remote update
git remote show origin
git remote -v update
git diff $x
git log -O a
git rev-parse --parseopt
git status --help
git diff -O a
git show --output-directory=a
# The folder is another's
cd a && git status
cd a; bash -c 'git log'
bash -c 'cd a; git log'
(cd a); git diff
cd a && /usr/bin/git status
cat $(cd a; git log)
""".splitlines()
    if line and not line.startswith("#")
]
STRANGE: Final = [
    "{ echo } always { rm a }\n}",
    "ls\xa0-la",
    "ls \x85",
    "ls \ud800",
    "ls \x9f",
    "echo $x\\\n[PATH=0]",
    'echo "$x\\\n[PATH=0]"',
    "uniq a 2\\\n>/dev/null",
    "ls <\\\n(ls)",
]
CONTINUED: Final = [
    "ls -la \\\n  src",
    "ls &&\\\n  cat a ||\\\nwc a",
    "\\\nls",
    "cat a \\\n  | wc -l",
    'echo "one \\\ntwo"',
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a folder in which several program names resolve if PATH has been changed."""
    folder = tmp_path / "work"
    for name in ("1", "5", "10", "x"):
        (folder / name).mkdir(parents=True)
        program = folder / name / "ls"
        program.write_text(f"#!/bin/sh\n: > {folder / name}/ran\n")
        program.chmod(0o755)
    (folder / "-x").mkdir()
    (folder / "in").write_text("b\na\na\n")
    (folder / "other").write_text("c\n")
    return folder


@pytest.mark.parametrize(("shell", "script", "made"), REAL)
def test_a_command_that_writes_or_runs_is_not_safe(
    folder: Path, shell: str, script: str, made: str | None
) -> None:
    assert not is_known_safe([shell, "-c", script])
    assert not only_reads(shlex.join([shell, "-c", script]))

    program = shutil.which(shell)
    if made is not None and program is not None:
        subprocess.run([program, "-c", script], cwd=folder, capture_output=True, check=False)
        assert (folder / made).exists(), "the row proves nothing"


@pytest.mark.parametrize("script", [*UNSAFE, *STRANGE])
def test_a_command_that_may_write_or_run_somewhere_is_not_safe(script: str) -> None:
    assert not any(is_known_safe([shell, "-lc", script]) for shell in ("bash", "zsh", "sh"))
    assert not only_reads(script)


@pytest.mark.parametrize("script", CONTINUED)
def test_a_read_only_command_may_span_several_lines(script: str) -> None:
    assert is_known_safe(["bash", "-lc", script])


def test_an_allowed_command_does_not_allow_git_beside_it() -> None:
    """A rule runs a script outside the sandbox; a repository made inside configures programs."""
    file = read_rules('prefix_rule(pattern=["make"], decision="allow")', "default.rules")
    rules = Rules([file])

    assert rules.check(["bash", "-lc", "ls && make"]) is not None
    assert rules.check(["bash", "-lc", "git status && make"]) is None
    assert rules.check(["bash", "-lc", "printf %n PATH && make"]) is None


COMMAND_APPROVAL: Final = "item/commandExecution/requestApproval"


@pytest.mark.parametrize(
    "script",
    [
        "printf '12345%n' PATH; ls",
        "uniq -- in -x/../made",
        "tree -Lo 1 made",
        "zsh -c 'printf %d \"a[$(touch made)]\"'",
        ": {PATH}</dev/null; ls",
        "echo 'a[$(touch made)]'; echo $(\\\n(echo , _))",
    ],
)
async def test_the_server_asks_before_it_runs_such_a_command(stage: Stage, script: str) -> None:
    client = await stage.client()
    stage.model.plays(calls("exec_command", {"cmd": script}), says("done"))
    thread_id = await client.start(
        cwd=str(stage.workspace), approvalPolicy="untrusted", sandbox="read-only"
    )
    turn_id = await client.start_turn(thread_id)
    request = await question(client, COMMAND_APPROVAL)
    await answer(client, request, {"decision": "decline"})
    events = await client.end_of(turn_id)

    items = [each["item"] for each in params_of(events, "item/completed")]
    assert [item["status"] for item in items if item["type"] == "commandExecution"] == ["declined"]
