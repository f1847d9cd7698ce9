"""Dangerous commands, however they are wrapped."""

from __future__ import annotations

from typing import Final

import pytest

from treadle.engine.commands.dangers import is_dangerous, is_forced_removal

# Upstream: release 0.163.0 asks about those of them that it finds; it misses xargs and command.
FORCED: Final = [
    *("rm -f a", "rm -rf a", "rm -fr a", "rm -r -f a", "rm --force a", "rm --forc a", "rm -Rvf a"),
    *(
        "/bin/rm -rf a",
        "ls && rm -rf a",
        "ls; rm -rf a",
        "ls | rm -f a",
        "(rm -rf a)",
        "rm -rf a > x",
    ),
    *("FOO=1 rm -rf a", "if ls; then rm -rf a; fi", "for i in a; do rm -rf $i; done", "rm -rf $x"),
    *("echo $(rm -rf a)", "echo `rm -rf a`", "cat <<E\n$(rm -rf a)\nE", "rm '-rf' a", "'rm' -rf a"),
    *(
        "sudo rm -rf a",
        "env X=1 rm -rf a",
        "xargs rm -rf",
        "ls | xargs -0 rm -rf",
        "command rm -f a",
    ),
    *("find . -exec rm -rf {} +", "timeout 5 rm -rf a", "nohup rm -rf a &", "bash -c 'rm -rf a'"),
    *(
        "env bash -c 'rm -rf a'",
        "bash -lc 'sh -c \"rm -rf a\"'",
        "eval rm -rf a",
        "eval 'rm -rf a'",
    ),
    *("bash -c -e 'rm -rf a'", "bash -c -- 'rm -rf a'", "{rm,-rf,a}", "r? -rf a", "rm {-rf,a}"),
    *("bash <<E\nrm -rf a\nE", "bash <<< 'rm -rf a'", "echo 'rm -rf a' | sh"),
    *("trap 'rm -rf a' EXIT", "env -S 'rm -rf a'", "flock a rm -rf b", "flock a -c 'rm -rf b'"),
    *("strace rm -rf a", "taskset 1 rm -rf a", "script -qc 'rm -rf a'"),
    # Not understood, but plain to see
    *("[[ 1 ]]; r''m -rf a", "[[ 1 ]]; {rm,-rf,a}", "[[ 1 ]]; r[m] -rf a"),
    *("case a in a) rm -rf b;; esac", "f() { rm -rf a; }; f", "ls &> /dev/null; rm -rf a"),
]

DANGEROUS: Final = [
    *(
        "sudo ls",
        "doas ls",
        "su",
        "env sudo ls",
        "git reset --hard",
        "git -C a reset --hard HEAD~1",
    ),
    *("git clean -fd", "git push --force", "git push -f", "git push --mirror", "git branch -D a"),
    *("git checkout -- .", "git checkout -f", "git stash drop", "find . -delete", "dd if=a of=b"),
    *(
        "mkfs.ext4 a",
        "shred a",
        "shutdown",
        "reboot",
        "ls && sudo ls",
        "bash -c 'git reset --hard'",
    ),
]

HARMLESS: Final = [
    *("ls", "rm a", "rm -r a", "rm -i a", "echo rm -rf a", "echo 'rm -rf a'", "touch a", "mv a b"),
    *("git reset", "git reset --soft HEAD~1", "git push", "git branch -d a", "git checkout main"),
    *(
        "git stash",
        "git log --grep=reset",
        "git commit -m 'reset --hard'",
        "find . -name x",
        "dd if=a",
    ),
    *("ls *", "ls {rm,-rf}", "$CC -fPIC a.c", "bash <<'E'\nls\nE", "timeout 5 ls *", "./*.sh"),
    *("bash a.sh; cat <<'E' > b\nrm -rf a\nE", "case a in [Yy]*) ls;; *) ls;; esac"),
    *("cat <<'E'\n$(rm -rf a)\nE", "rg 'sudo ls'", "bash -c 'echo rm -rf'", "xargs ls", "bash", ""),
]


@pytest.mark.parametrize("script", FORCED)
def test_a_forced_removal_is_found(script: str) -> None:
    argv = ["/bin/bash", "-lc", script]

    assert (is_forced_removal(argv), is_dangerous(argv)) == (True, True)


@pytest.mark.parametrize("script", DANGEROUS)
def test_other_dangers_are_found_too(script: str) -> None:
    argv = ["/bin/bash", "-lc", script]

    assert (is_forced_removal(argv), is_dangerous(argv)) == (False, True)


@pytest.mark.parametrize("script", HARMLESS)
def test_an_ordinary_command_is_not_dangerous(script: str) -> None:
    assert not is_dangerous(["/bin/bash", "-lc", script])


def test_a_command_without_a_shell_is_checked_for_dangers() -> None:
    assert is_dangerous(["rm", "-rf", "a"])
    assert is_dangerous(["bash", "-x", "-c", "rm -rf a", "zero"])
    assert not is_dangerous(["echo", "rm", "-rf", "a"])
    assert not is_dangerous([])


@pytest.mark.parametrize("script", ["noglob rm -rf a", "- rm -rf a", "repeat 3 rm -rf a"])
def test_a_forced_removal_is_found_behind_zsh_syntax(script: str) -> None:
    assert is_forced_removal(["zsh", "-c", script])


REPEATING: Final = "env " * 400 + "bash " * 400 + "-c 'ls'"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "script",
    [
        "env " * 40 + "bash " * 70 + f"-c '{REPEATING.replace(chr(39), '')}'",
        "rm " * 100_000 + "(((",
        "rm; " * 1000 + "(((",
        "eval " * 3000 + "ls",
        "env " * 200 + "rm -rf a",
        "ls " + "a" * 200_000,
        "* push",
    ],
)
def test_a_command_that_is_too_complex_counts_as_dangerous(script: str) -> None:
    argv = ["bash", "-c", script]

    assert (is_dangerous(argv), is_forced_removal(argv)) == (True, True)


def test_a_long_heredoc_is_not_dangerous() -> None:
    document = "\n".join(f"print('rm -rf {line}')" for line in range(4000))

    assert not is_dangerous(["bash", "-c", f"python3 - <<'END'\n{document}\nEND"])
