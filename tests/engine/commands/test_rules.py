"""Rules about commands and hosts: read, matched, the strictest first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from treadle.engine.commands.rules import Rules, RulesCache, Verdict, amendment_for

RULES: Final = """\
# What our tools may do.
prefix_rule(pattern=["touch"], decision="prompt", justification="touching is rude")
prefix_rule(pattern=["rm"], decision="forbidden", justification="use trash")
prefix_rule(pattern=["make"])
prefix_rule(pattern=["git", ["push", "fetch"], "origin"], decision="allow")
prefix_rule(pattern=["git", "push", "origin", "main"], decision="forbidden")
prefix_rule(pattern=["curl"], decision="forbidden")
"""

TOUCH: Final = Verdict("prompt", ("touch",), "touching is rude", "default.rules:2")
RM: Final = Verdict("forbidden", ("rm",), "use trash", "default.rules:3")
MAKE: Final = Verdict("allow", ("make",), None, "default.rules:4")
CURL: Final = Verdict("forbidden", ("curl",), None, "default.rules:7")


def load(folder: Path, text: str) -> Rules:
    folder.mkdir(exist_ok=True)
    (folder / "default.rules").write_text(text)
    return Rules.load([folder])


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("touch a", TOUCH),
        ("rm a", RM),
        ("make all", MAKE),
        ("git fetch origin", Verdict("allow", ("git", "fetch", "origin"), None, "default.rules:5")),
        (
            "git push origin main",
            Verdict("forbidden", ("git", "push", "origin", "main"), None, "default.rules:6"),
        ),
        ("git push", None),
        ("git", None),
        ("cp a b", None),
        ("ls", None),
        # The strictest of all parts
        ("make && touch a", TOUCH),
        ("touch a; rm b", RM),
        ("cp a b && touch c", TOUCH),
        # Allowed only if every part is, by a rule or because it is known to be safe
        ("make && make install", MAKE),
        ("ls && make", MAKE),
        ("make && cp a b", None),
        ("make > log", None),
        ("make $x", None),
        ("X=1 make", None),
        # A restriction finds its command wherever it is
        ("rm a > b", RM),
        ("echo $(rm a)", RM),
        ("cat <<E\n`rm a`\nE", RM),
        ("(rm a)", RM),
        ("if ls; then rm a; fi", RM),
        ("X=1 rm a", RM),
        ("sudo rm a", RM),
        ("env -i curl x", CURL),
        ("ls | xargs curl", CURL),
        ("bash -c 'rm a'", RM),
        ("case a in a) curl x;; esac", CURL),
        ("make && echo rm", MAKE),
        # By its path
        ("/bin/rm a", RM),
        ("./rm a", RM),
        ("/usr/bin/make", MAKE),
        ("./make", None),
        ("/opt/make", None),
    ],
)
def test_the_strictest_rule_about_a_script_decides(
    script: str, verdict: Verdict | None, tmp_path: Path
) -> None:
    assert load(tmp_path, RULES).check(["/bin/bash", "-lc", script]) == verdict


PUSH: Final = """\
prefix_rule(pattern=["git", "push"], decision="forbidden")
prefix_rule(pattern=["deploy"], decision="forbidden")
"""


@pytest.mark.parametrize(
    ("script", "decision"),
    [
        ("bash -c -e 'git push; ls'", "forbidden"),
        ("bash -c -- 'git push'", "forbidden"),
        ("bash -c -o errexit 'git push'", "forbidden"),
        ("bash -ec 'git push'", "forbidden"),
        ("[[ 1 ]]; gi''t push", "forbidden"),
        ("[[ 1 ]]; g\\it push", "forbidden"),
        ("[[ 1 ]]; {git,push}", "forbidden"),
        ("[[ 1 ]]; gi? push", "forbidden"),
        ("[[ 1 ]]; x=git; $x push", "prompt"),
        ("[[ 1 ]] && git $x", "prompt"),
        ("{git,push}", "forbidden"),
        ("{git,{push,origin}}", "forbidden"),
        ("git {push,origin}", "forbidden"),
        ("git pus{h,}", "forbidden"),
        ("gi{s..u} push", "forbidden"),
        ("gi? push", "forbidden"),
        ("/usr/bin/g[i]t push", "forbidden"),
        ("git pus?", "prompt"),
        ("git $x", "prompt"),
        ("x=git; $x push", "prompt"),
        ("$(echo git) push", "prompt"),
        ("bash <<E\ngit push\nE", "forbidden"),
        ("bash -s <<'E'\ngit push\nE", "forbidden"),
        ("env bash <<'E'\ngit push\nE", "forbidden"),
        ("bash <<E\necho $x\nE", "prompt"),
        ("cat <<'E' | sh\ngit push\nE", "forbidden"),
        ("{ bash; } <<'E'\ngit push\nE", "forbidden"),
        (". /dev/stdin <<'E'\ngit push\nE", "forbidden"),
        ("bash <<< 'git push'", "forbidden"),
        ('bash <<< "$x"', "prompt"),
        ("echo 'git push' | bash", "forbidden"),
        ("base64 -d a | bash", "prompt"),
        ("bash < a", "prompt"),
        ("bash <(cat a)", "prompt"),
        ("trap 'git push' EXIT", "forbidden"),
        ("trap deploy EXIT", "forbidden"),
        ('trap "$x" EXIT', "prompt"),
        ("env -S 'git push'", "forbidden"),
        ("env '-Sgit push'", "forbidden"),
        ("env -S 'git\\_push'", "forbidden"),
        ("env -vSgit push", "forbidden"),
        ("env --split-string='git push'", "forbidden"),
        ("env X=1 $x push", "prompt"),
        ("timeout 5 gi? push", "forbidden"),
        ("flock a git push", "forbidden"),
        ("flock a -c 'git push'", "forbidden"),
        ("strace -f git push", "forbidden"),
        ("taskset 1 git push", "forbidden"),
        ("script -qc 'git push' /dev/null", "forbidden"),
        ("script '-qcgit push'", "forbidden"),
        ("find . -exec $x {} +", "prompt"),
        ('bash -c "$x"', "prompt"),
        ('eval "$x"', "prompt"),
    ],
)
def test_a_restriction_holds_for_every_spelling(script: str, decision: str, tmp_path: Path) -> None:
    verdict = load(tmp_path, PUSH).check(["/bin/bash", "-lc", script])

    assert verdict is not None
    assert verdict.decision == decision


@pytest.mark.parametrize(
    "script",
    [
        "ls *",
        "cp {a,b}.txt c",
        "git add *",
        'git commit -m "$message"',
        "git log $x",
        "rm -f *.o $x",
        "make -j$(nproc)",
        "./run-*.sh",
        'for f in *.py; do python3 "$f"; done',
        'find "$folder" -name *.py',
        "find . -exec grep {} x +",
        "timeout 5 ls *",
        'xargs -I{} cp {} "$to"',
        'env X="$x y" make',
        "cat <<'E' > notes\ngit push\nE",
        "python3 - <<'E'\nprint('git push')\nE",
        "bash build.sh",
        "bash --version",
        "bash <<'E'\nmake\nE",
        "bash <<< 'make'",
        "trap 'echo done' EXIT",
        "[[ -f a && $x == b ]] && make *.o",
        "case $1 in -h|--help) usage;; *.txt) ls;; *) make;; esac",
        'f() { echo "${1:-x}"; }; f a',
        "i=$((i+1)); make &> log",
        'x=${y:-z}; make "$x"',
    ],
)
def test_an_ordinary_script_matches_no_restriction(script: str, tmp_path: Path) -> None:
    assert load(tmp_path, PUSH).check(["/bin/bash", "-lc", script]) is None


def test_a_complex_script_can_be_allowed_as_a_whole(tmp_path: Path) -> None:
    rules = load(tmp_path, 'prefix_rule(pattern=["/bin/bash", "-lc", "echo $HOME > a"])')

    assert rules.check(["/bin/bash", "-lc", "echo $HOME > a"]) is not None
    assert rules.check(["/bin/bash", "-lc", "echo $HOME > b"]) is None
    assert rules.check(["/usr/bin/bash", "-lc", "echo $HOME > a"]) is None


def test_a_command_without_a_shell_is_checked(tmp_path: Path) -> None:
    rules = load(tmp_path, RULES)

    assert rules.check(["rm", "a"]) == RM
    assert rules.check(["make"]) == MAKE
    assert rules.check([]) is None


def test_listed_programs_are_the_only_ones_of_their_name(tmp_path: Path) -> None:
    rules = load(
        tmp_path,
        'prefix_rule(pattern=["tool"])\nhost_executable(name="tool", paths=["/opt/x/tool"])\n',
    )

    allowed = [name for name in ("tool", "/opt/x/tool", "/usr/bin/tool") if rules.check([name])]
    assert allowed == ["tool", "/opt/x/tool"]


@pytest.mark.parametrize("program", ["git", "/usr/bin/git", "/bin/git", "./git"])
def test_a_list_of_programs_does_not_narrow_a_restriction(program: str, tmp_path: Path) -> None:
    rules = load(
        tmp_path,
        'prefix_rule(pattern=["git", "push"], decision="forbidden")\n'
        'host_executable(name="git", paths=["/usr/bin/git"])\n',
    )

    for argv in ([program, "push"], ["bash", "-c", f"{program} push"]):
        verdict = rules.check(argv)
        assert verdict is not None
        assert verdict.decision == "forbidden"


def test_rules_files_of_all_folders_apply(tmp_path: Path) -> None:
    load(tmp_path / "user", 'prefix_rule(pattern=["a"])')
    (tmp_path / "user" / "more.rules").write_text('prefix_rule(pattern=["b"])')
    (tmp_path / "user" / "notes.txt").write_text('prefix_rule(pattern=["d"])')
    load(tmp_path / "project", 'prefix_rule(pattern=["a"], decision="prompt")')

    rules = Rules.load([tmp_path / "user", tmp_path / "missing", tmp_path / "project"])

    assert rules.check(["a"]) == Verdict("prompt", ("a",), None, "default.rules:1")
    assert rules.check(["b"]) == Verdict("allow", ("b",), None, "more.rules:1")
    assert rules.check(["d"]) is None
    assert rules.warnings == ()


@pytest.mark.parametrize(
    ("host", "protocol", "decision"),
    [
        ("example.com", None, "forbidden"),
        ("example.com", "https", "allow"),
        ("EXAMPLE.com.", "https", "allow"),
        ("example.com:443", "https", "allow"),
        ("example.com", "socks5_udp", None),
        ("www.example.com", None, None),
        ("[::1]:80", None, "prompt"),
        ("http://example.com", None, None),
    ],
)
def test_the_strictest_rule_about_a_host_decides(
    host: str, protocol: str | None, decision: str | None, tmp_path: Path
) -> None:
    rules = load(
        tmp_path,
        'network_rule(host="Example.com", protocol="https", decision="allow")\n'
        'network_rule(host="example.com", protocol="http", decision="deny")\n'
        'network_rule(host="::1", protocol="http", decision="prompt", justification="local")\n',
    )

    verdict = rules.check_host(host, protocol)

    assert (verdict.decision if verdict else None) == decision


def test_rules_are_read_again_when_a_file_changes(tmp_path: Path) -> None:
    cache = RulesCache()
    load(tmp_path, 'prefix_rule(pattern=["a"])')
    first = cache.load([tmp_path])
    assert cache.load([tmp_path]) is first

    (tmp_path / "more.rules").write_text('prefix_rule(pattern=["b"])')
    second = cache.load([tmp_path])
    os.replace(tmp_path / "more.rules", tmp_path / "more.txt")  # noqa: PTH105 - as editors do it
    third = cache.load([tmp_path])

    assert [bool(rules.check(["b"])) for rules in (first, second, third)] == [False, True, False]


@pytest.mark.parametrize(
    ("script", "proposed"),
    [
        # Upstream
        ("touch hello.txt && echo made", ["touch", "hello.txt"]),
        ("ls; sleep 5", ["sleep", "5"]),
        ("npm run build", ["npm", "run", "build"]),
        ("git push", ["git", "push"]),
        ("python3 a.py", ["python3", "a.py"]),
        ("echo $HOME > a", ["/bin/bash", "-lc", "echo $HOME > a"]),
        ("python3 - <<'E'\n1\nE", ["/bin/bash", "-lc", "python3 - <<'E'\n1\nE"]),
        # Ours: never a rule that allows everything, or more destruction than was asked for
        ("bash", None),
        ("python3", None),
        ("python3 -", None),
        ("git", None),
        ("sudo ls", None),
        ("rm -rf a", None),
        ("touch a && sudo ls", None),
        # Nothing is left to allow
        ("ls", None),
    ],
)
def test_the_first_part_that_is_not_allowed_is_proposed(
    script: str, proposed: list[str] | None
) -> None:
    assert amendment_for(["/bin/bash", "-lc", script], Rules()) == proposed


def test_outside_the_sandbox_safe_commands_need_a_rule_too() -> None:
    argv = ["/bin/bash", "-lc", "ls && touch a"]

    assert amendment_for(argv, Rules()) == ["touch", "a"]
    assert amendment_for(argv, Rules(), escalated=True) == ["ls"]


def test_nothing_is_proposed_against_a_rule(tmp_path: Path) -> None:
    rules = load(tmp_path, RULES)

    assert amendment_for(["bash", "-lc", "touch a"], rules) is None
    assert amendment_for(["bash", "-lc", "cp a b && touch c"], rules) is None
    assert amendment_for(["bash", "-lc", "make && cp a b"], rules) == ["cp", "a", "b"]


@pytest.mark.parametrize(
    ("script", "prefix", "proposed"),
    [
        # Upstream
        ("git push x", ["git", "push"], ["git", "push"]),
        ("touch a && touch b", ["touch"], ["touch"]),
        ("touch a && mkdir b", ["touch"], ["touch", "a"]),
        ("touch a", ["touch", "b"], ["touch", "a"]),
        ("touch $X > a", ["touch"], ["/bin/bash", "-lc", "touch $X > a"]),
        ("touch a", [], ["touch", "a"]),
        ("git x", ["git"], ["git", "x"]),
        ("python3 -c x", ["python3", "-c"], ["python3", "-c", "x"]),
        ("/bin/bash -lc x", ["/bin/bash", "-lc"], ["/bin/bash", "-lc", "x"]),
        ("npm run x", ["npm", "run"], ["npm", "run", "x"]),
        ("cargo x", ["cargo"], ["cargo"]),
        ("uv pip x", ["uv", "pip"], ["uv", "pip"]),
        # Ours: each of these starts any program
        ("xargs x", ["xargs"], ["xargs", "x"]),
        ("uv run x", ["uv", "run"], ["uv", "run", "x"]),
        ("python3 -m x", ["python3", "-m"], ["python3", "-m", "x"]),
        ("sudo ls x", ["sudo", "ls"], None),
    ],
)
def test_the_prefix_that_the_model_requests_is_proposed_unless_it_is_too_wide(
    script: str, prefix: list[str], proposed: list[str] | None
) -> None:
    argv = ["/bin/bash", "-lc", script]

    assert amendment_for(argv, Rules(), prefix_rule=prefix, escalated=True) == proposed


UNREADABLE = {
    "too long": "#" * 1_000_001,
    "too many steps": "pass\n" * 20_001,
    "too many errors": "a b\n" * 101,
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_everything_needs_approval_while_a_file_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.rules").write_text(
        'prefix_rule(["rm"], "forbidden")\nprefix_rule(["ls"], "allow")\n'
    )
    (tmp_path / "b.rules").write_text(text)
    rules = Rules.load([tmp_path])
    decisions = [rules.check(argv) for argv in (["rm", "a"], ["ls"], ["mkdir", "a"])]
    assert [each and each.decision for each in decisions] == ["forbidden", "prompt", "prompt"]
    host = rules.check_host("example.com")
    assert host is not None
    assert host.decision == "prompt"


def test_folder_in_place_of_a_file_of_rules_requires_approval(tmp_path: Path) -> None:
    (tmp_path / "a.rules").mkdir()
    verdict = Rules.load([tmp_path]).check(["ls"])
    assert verdict is not None
    assert verdict.decision == "prompt"


@pytest.mark.parametrize(("count", "suffix"), [(501, "rules"), (5001, "txt")])
def test_too_many_files_may_contain_any_rule(tmp_path: Path, count: int, suffix: str) -> None:
    for number in range(count):
        (tmp_path / f"{number}.{suffix}").touch()

    verdict = RulesCache().load([tmp_path]).check(["cp", "a", "b"])

    assert verdict is not None
    assert verdict.decision == "prompt"
    assert verdict.justification is not None
    assert "more than 500 files" in verdict.justification
