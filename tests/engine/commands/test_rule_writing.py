"""Rules that a client's answer adds to a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from treadle.engine.commands.rule_file import read_rules
from treadle.engine.commands.rules import Rules, append_network_rule, append_rule
from treadle.protocol.network import NetworkPolicyAmendment


def test_the_first_rule_creates_a_private_folder_and_file(tmp_path: Path) -> None:
    path = tmp_path / "home" / "rules" / "default.rules"

    append_rule(path, ["touch"])

    assert path.read_text() == 'prefix_rule(pattern=["touch"], decision="allow")\n'
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["default.rules"]


def test_a_rule_is_appended_once(tmp_path: Path) -> None:
    path = tmp_path / "default.rules"
    path.write_text('# mine\nprefix_rule(["a"], "allow")')
    path.chmod(0o640)

    for pattern in (["a"], ["b", "c d"], ["b", "c d"], ["b"]):
        append_rule(path, pattern)

    assert path.read_text() == (
        '# mine\nprefix_rule(["a"], "allow")\n'
        'prefix_rule(pattern=["b", "c d"], decision="allow")\n'
        'prefix_rule(pattern=["b"], decision="allow")\n'
    )
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("word", ['"', "\\", "\n", "é", "😀", "'", "\t", "\x7f", "$(rm a)", '")])'])
def test_any_word_is_read_back_as_it_was_written(word: str, tmp_path: Path) -> None:
    append_rule(tmp_path / "default.rules", ["say", word])

    rules = Rules.load([tmp_path])

    assert rules.warnings == ()
    assert rules.check(["say", word, "more"]) is not None
    assert rules.check(["say", "else"]) is None


def test_an_empty_pattern_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "default.rules"

    with pytest.raises(ValueError, match="a rule needs a pattern"):
        append_rule(path, [])

    assert not path.exists()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.rules").write_text("")
    link = tmp_path / "default.rules"
    link.symlink_to("real.rules")

    append_rule(link, ["a"])

    assert link.is_symlink()
    assert (tmp_path / "real.rules").read_text() == 'prefix_rule(pattern=["a"], decision="allow")\n'


def test_a_rule_about_a_host_is_added_once(tmp_path: Path) -> None:
    path = tmp_path / "default.rules"

    for host in ("Example.com", "example.com:443"):
        append_network_rule(path, NetworkPolicyAmendment(action="allow", host=host))
    append_network_rule(path, NetworkPolicyAmendment(action="deny", host="b.c"), "http")

    assert path.read_text() == (
        'network_rule(host="example.com", protocol="https", decision="allow", '
        'justification="Allow https_connect access to example.com")\n'
        'network_rule(host="b.c", protocol="http", decision="deny", '
        'justification="Deny http access to b.c")\n'
    )
    rules = Rules.load([tmp_path])
    verdicts = [rules.check_host(host) for host in ("example.com", "b.c")]
    assert [verdict and verdict.decision for verdict in verdicts] == ["allow", "forbidden"]


def test_a_rule_about_an_invalid_host_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wildcards are not allowed"):
        append_network_rule(
            tmp_path / "default.rules", NetworkPolicyAmendment(action="allow", host="*")
        )


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rules" / "default.rules"
    program = (
        "import sys; from pathlib import Path\n"
        "from treadle.engine.commands.rules import append_rule\n"
        "for n in range(20): append_rule(Path(sys.argv[1]), [sys.argv[2], str(n)])\n"
    )

    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "abc"]

    assert [writer.wait(timeout=40) for writer in writers] == [0, 0, 0]
    assert sorted(path.read_text().splitlines()) == sorted(
        f'prefix_rule(pattern=["{name}", "{n}"], decision="allow")'
        for name in "abc"
        for n in range(20)
    )


def test_rule_that_would_make_the_file_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "default.rules"
    path.write_text('prefix_rule(pattern=["mkdir"], decision="forbidden")\n')
    for number in range(7):
        append_rule(path, ["touch", f"{number}", "x" * 125_000])
    with pytest.raises(OSError, match="too large"):
        append_rule(path, ["touch", "x" * 125_000])
    file = read_rules(path.read_text(), path.name)
    assert (len(file.prefixes), file.warnings, file.unread) == (8, [], None)
