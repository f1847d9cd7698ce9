"""Commands that a rule forbids or prompts for, in spellings that hide them from it."""

from __future__ import annotations

from typing import Final

import pytest

from tests.harness.model_server import calls, says
from tests.harness.threads import Stage, params_of
from treadle.engine.commands.dangers import is_dangerous
from treadle.engine.commands.rule_file import read_rules
from treadle.engine.commands.rules import Rules

FORBIDDEN: Final = """\
prefix_rule(pattern=["touch"], decision="forbidden")
prefix_rule(pattern=["git", "push"], decision="forbidden")
"""

# Too much for the search for these names, and for no others.
CROWDED: Final = [
    "env touch made " + "touch " * 120,
    "nice touch made " + "touch " * 120,
    "[[ 1 ]]; touch made; : " + "touch; " * 500,
    "timeout 9 /bin/touch made " + "/bin/touch " * 120,
]

# A shell, a script for it, and the rules' decision.
HIDDEN: Final = [
    ("zsh", "=git push", "forbidden"),
    ("zsh", "[[ 1 ]]; =git push", "forbidden"),
    ("zsh", "/usr/bin/gi(t) push", "forbidden"),
    ("zsh", "/usr/bin/git(N) push", "forbidden"),
    ("bash", "shopt -s extglob\n/usr/bin/@(git) push", "prompt"),
    ("sh", "alias g=git\ng push", "prompt"),
    ("zsh", "alias g='git push'\ng", "forbidden"),
    ("bash", "hash -p /usr/bin/git g; g push", "prompt"),
    ("zsh", "hash g=/usr/bin/git; g push", "prompt"),
    ("bash", "source /dev/fd/3 3<<< 'git push'", "forbidden"),
    ("bash", "cat a | . /proc/self/fd/0", "prompt"),
    ("bash", "mapfile -C 'git push' -c 1 <<< x", "forbidden"),
    ("bash", "compgen -C 'git push'", "forbidden"),
    ("bash", "compgen -W '$(git push)'", "forbidden"),
    ("bash", "let 'a[$(git push)]'", "forbidden"),
    ("bash", "test -v 'a[$(git push)]'", "forbidden"),
    ("bash", "printf -v 'a[`git push`]' x", "forbidden"),
    ("bash", "/lib64/ld-linux-x86-64.so.2 /usr/bin/git push", "forbidden"),
    ("bash", "uv run git push", "forbidden"),
    ("bash", "poetry run -- git push", "forbidden"),
    ("bash", "choom -n 0 -- git push", "forbidden"),
    ("bash", "csh -c 'git push'", "forbidden"),
    ("bash", "yash -c 'git push'", "forbidden"),
    ("bash", r"env -S 'touch\c' made", "forbidden"),
    ("bash", r"env -S 'git push\c x'", "forbidden"),
    ("bash", r"env --split-string 'touch\c' made", "forbidden"),
    ("bash", "getopts a 'a[$(touch made)]' -a", "forbidden"),
    ("bash", "echo push | xargs git", "prompt"),
    ("bash", "echo push | xargs -n1 git", "prompt"),
    ("bash", "echo git push | xargs env", "prompt"),
    ("bash", "xargs -I{} git {} <<< push", "prompt"),
    ("bash", "xargs -I{} {} push <<< git", "prompt"),
    ("bash", "xargs -I % % push <<< git", "prompt"),
    ("bash", "xargs -I % sh -c % <<< 'touch made'", "prompt"),
    ("bash", "xargs -I% sh -c 'git %' <<< push", "prompt"),
    ("bash", "cat a | xargs -0 bash -c", "prompt"),
    ("bash", "xargs -0 bash -c <<< 'touch made'", "forbidden"),
    ("bash", "find push -exec git {} \\;", "prompt"),
    ("bash", "parallel git {1} ::: push", "prompt"),
    ("bash", "parallel git ::: push", "prompt"),
    ("bash", "parallel -j 4 git ::: push", "prompt"),
    ("bash", "parallel < a", "prompt"),
    ("bash", "parallel ::: 'git push'", "forbidden"),
    ("bash", "parallel -a a", "prompt"),
    ("bash", "echo 'git push' | parallel", "forbidden"),
    ("bash", "GIT push", "forbidden"),
    ("bash", "env Git push", "forbidden"),
    ("bash", "[[ 1 ]]; GIT push", "forbidden"),
    ("bash", "sudo -s < a", "prompt"),
    ("bash", "echo 'git push' | linux64", "forbidden"),
    ("bash", "cat a | linux64", "prompt"),
    ("bash", "echo 'git push' | setarch x86_64", "forbidden"),
    ("bash", "cat a | setarch x86_64 -R", "prompt"),
    ("bash", "echo 'git push' | SHELL=/bin/sh unshare", "forbidden"),
    ("bash", "cat a | unshare -r", "prompt"),
    ("bash", "unshare <<< 'git push'", "forbidden"),
    ("bash", "cat a | env unshare", "prompt"),
    ("bash", "echo 'git push; exit' | script -q /dev/null", "forbidden"),
    ("bash", "script -q /dev/null < a", "prompt"),
    ("bash", "echo 'git push' | SHELL=/bin/sh fakeroot", "forbidden"),
    ("bash", "echo 'git push' | SHELL=/bin/sh chroot /", "forbidden"),
    ("bash", "echo push | xargs -tI X git X", "prompt"),
    ("bash", "echo push | xargs -rtIX git X", "prompt"),
    ("bash", "echo push | xargs -I Y -I X git X", "prompt"),
    ("bash", "echo git | xargs -rI X X push", "prompt"),
    ("bash", "echo push | xargs -tI X sh -c 'git X'", "prompt"),
    ("bash", "echo push | env xargs git", "prompt"),
    ("bash", "echo push | nice xargs git", "prompt"),
    ("bash", "nice find push -exec git {} \\;", "prompt"),
    ("bash", "bash +c 'git push'", "forbidden"),
    ("bash", "sh -e +ec 'git push'", "forbidden"),
    ("bash", "jobs -x git push", "forbidden"),
    ("bash", "set -o history; history -s a; fc -e 'git push #'", "prompt"),
    ("bash", "set -o history\n: git push\nfc -s ': '=''", "prompt"),
    ("bash", "[[ 1 ]]; fc -s", "prompt"),
    ("bash", "bash --rcfile <(echo git push) -ic :", "forbidden"),
    ("bash", "bash --init-file /dev/stdin -ic : < a", "prompt"),
    ("bash", "cat a | bash //dev/stdin", "prompt"),
    ("bash", "cat a | bash /dev/../dev/fd//0", "prompt"),
    ("bash", "cat a | . /proc/self/./fd/0", "prompt"),
    ("bash", ". //dev/stdin <<< 'git push'", "forbidden"),
    ("bash", "cd /dev; . ./stdin <<< 'git push'", "forbidden"),
    ("bash", "cd /dev; cat a | bash stdin", "prompt"),
    ("zsh", "emulate sh -c 'git push'", "forbidden"),
    ("zsh", "zpty x git push", "forbidden"),
    ("zsh", "sched +0 'git push'", "forbidden"),
    ("zsh", "return 'a[$(git push)]'", "forbidden"),
    ("zsh", "integer 'a[$(git push)]'", "forbidden"),
    ("zsh", "é=1 git push", "forbidden"),
    ("zsh", "é[1]=1 git push", "forbidden"),
    ("bash", "fish -c 'not git push'", "forbidden"),
    ("bash", "git --shallow-file /dev/null push", "forbidden"),
    ("bash", "git --new-option value push", "forbidden"),
    ("bash", "git --new-option push", "forbidden"),
    ("bash", "git -C . push", "forbidden"),
    ("bash", "git -c a=b --git-dir .git push", "forbidden"),
    ("bash", "env git --no-pager -P --git-dir=.git push", "forbidden"),
    ("bash", "/usr/bin/git --bare push", "forbidden"),
]

ORDINARY: Final = [
    "uv add git",
    "git -C push status",
    "git --no-pager log push",
    "git ls-files | xargs git add",
    "git ls-files | xargs -I{} git add {}",
    "find . -name '*.py' -exec grep -l x {} +",
    "find . | xargs -I % cp % b",
    "find . | xargs",
    "npm install touch",
    "linux64 make",
    "setarch x86_64 -R ./a.out",
    "unshare -r make",
    "fakeroot make install",
    "script -qc 'make' /dev/null",
    "sudo make install",
    "parallel -j 4 gzip ::: a b",
    "ls | parallel gzip",
    "nice xargs rm < a",
    "find . | xargs -0 -I % cp % b",
    "git --literal-pathspecs log push",
    "poetry run pytest",
    "hash -r",
    "alias",
    "mapfile -t lines < a",
    "printf '[x] done\\n'",
    'printf "[$(date)] done\\n"',
    '[ "${a[$i]}" = "[$y]" ]',
    "f() { make; }; f",
    "python3 - <<E\nfor x in y: print(x)\n[[ 1 ]]\nE",
    "read -r line < a",
    "fc -l",
    "jobs -l",
    "return 1",
    "bash +x a.sh",
    "bash --rcfile a -i b",
    "source lib/stdin.sh",
    "echo $é",
]


def decision(script: str, shell: str = "bash") -> str | None:
    verdict = Rules([read_rules(FORBIDDEN, "default.rules")]).check([shell, "-lc", script])
    return None if verdict is None else verdict.decision


@pytest.mark.parametrize("script", CROWDED)
def test_many_lookalikes_do_not_hide_a_forbidden_command(script: str) -> None:
    assert not is_dangerous(["bash", "-lc", script])
    assert decision(script) in {"prompt", "forbidden"}


def test_a_forbidden_command_that_was_seen_stays_forbidden() -> None:
    assert decision(CROWDED[0]) == "forbidden"


@pytest.mark.parametrize(("shell", "script", "expected"), HIDDEN)
def test_no_spelling_hides_a_forbidden_command(shell: str, script: str, expected: str) -> None:
    assert decision(script, shell) == expected


@pytest.mark.parametrize("script", ORDINARY)
def test_an_ordinary_command_is_not_mistaken_for_a_forbidden_one(script: str) -> None:
    assert decision(script) is None


@pytest.mark.parametrize("command", ["curl a", "/bin/curl a", "env /usr/bin/curl a", "env curl a"])
def test_a_rule_that_names_a_path_applies_to_every_path(command: str) -> None:
    text = 'prefix_rule(pattern=["/usr/bin/curl"], decision="forbidden")'
    verdict = Rules([read_rules(text, "default.rules")]).check(["bash", "-lc", command])

    assert verdict is not None
    assert verdict.decision == "forbidden"


@pytest.mark.parametrize("policy", ["on-request", "never"])
async def test_the_server_runs_no_forbidden_command_among_lookalikes(
    stage: Stage, policy: str
) -> None:
    (stage.home / "rules").mkdir()
    (stage.home / "rules" / "default.rules").write_text(FORBIDDEN)
    client = await stage.client()
    stage.model.plays(calls("exec_command", {"cmd": CROWDED[0]}), says("done"))
    thread_id = await client.start(
        cwd=str(stage.workspace), approvalPolicy=policy, sandbox="workspace-write"
    )
    events = await client.end_of(await client.start_turn(thread_id))

    items = [each["item"] for each in params_of(events, "item/completed")]
    assert [item["status"] for item in items if item["type"] == "commandExecution"] == ["declined"]
    assert not (stage.workspace / "made").exists()
