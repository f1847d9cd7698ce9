"""Commands that are judged safe are really run: random words for real programs, among tripwires."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import cycle, product
from pathlib import Path
from typing import Final

import pytest

from treadle.shell.safe import is_known_safe

# `TREADLE_FUZZ=20000 pytest tests/shell/test_execution.py` runs longer, with other seeds; if strace
# is installed, it also checks every program that is started.
EXAMPLES: Final = int(os.environ.get("TREADLE_FUZZ", "0"))
SHELLS: Final = [name for name in ("bash", "dash", "zsh", "ksh") if shutil.which(name)]

PROGRAMS: Final = """
    [ base64 basename cat cd cksum cmp column comm command cut date df diff dirname du echo egrep
    expand expr fgrep find fold git grep groups head hostname id join ls md5sum nl nproc numfmt od
    paste printf pwd readlink realpath rev rg sed seq sha1sum sort stat strings tac tail test tr
    tree type uname uniq wc which whoami
""".split()
# Programs that can do more than read, and words that might make them.
RISKY: Final = {
    name: words.split()
    for name, words in {
        "[": "! -v a[$(tripwire)] -eq 0 -f ]",
        "base64": "in -o made -d -i -omade --",
        "date": "+%F -u -s 0101000026 -f in --set=now",
        "diff": "in other -l -u --paginate -- --to-file=in",
        "find": "in -name -exec tripwire ; -delete -fprint made",
        "git": "log diff --output=made --ext-diff branch made -p",
        "hostname": "made -F in -s",
        "printf": "12345%n PATH %d a[$(tripwire)] %s -v 1",
        "rg": "1 in --pre tripwire --pre=tripwire -z -e",
        "sed": "-n 1p in -i 1wmade 1etripwire -e",
        "sort": "in -o made -omade -k 1 --compress-program=tripwire",
        "test": "! -v a[$(tripwire)] -eq 0 -f in",
        "tree": "-L 1 -Lo made -o -- -R",
        "uniq": "in made -- -c -x/../made -f 1",
    }.items()
}
# Programs that one of the above could start; each leaves a trace.
TRIPWIRES: Final = """
    tripwire pr gzip xz bzip2 zstd gpg gpg2 less more man sh-tripwire ssh open-tripwire vi emacs
""".split()
GIT_COMMANDS: Final = (
    "blame branch diff grep log ls-files ls-tree remote rev-parse show status".split()
)
VALUES: Final = [
    *r"""
    in other made - -- -x/../made 1 -1 +1 2,3 %n PATH . a[$(tripwire)] %d %s 12345%n %(%F)T \x25n
    1,2p $p HEAD f +%F 0101000026 ] -eq -v -nt = ! --output=made -omade *in
    """.split(),
    *("1w made", ""),
]
# Put into the script unquoted, for the shell to expand.
BARE: Final = ["$x", "*", "i*", "{in,made}", "~", "$(tripwire)", "`tripwire`", ">/dev/null", "<in"]
JOINTS: Final = [" | ", "; ", " && ", " || ", "\n", " & "]


@cache
def options_of(program: str) -> list[str]:
    """Return the options that a program of this machine lists, long ones with all their values."""
    path = shutil.which(program)
    if path is None or program in {"[", "test", "printf", "echo", "cd", "command", "type"}:
        return []
    done = subprocess.run(
        [path, "--help"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=20
    )
    text = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    return sorted(set(re.findall(r"(?<![\w-])--[a-z0-9][a-z0-9-]+=?", text)))


class Writer:
    """Generates random scripts from the programs above."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def script(self) -> str:
        script, *parts = [self._command() for _ in range(self._rng.choice([1, 1, 1, 2, 3]))]
        for part in parts:
            script += self._rng.choice(JOINTS) + part
        return script

    def _command(self) -> str:
        name = self._rng.choice(list(RISKY) if self._rng.random() < 0.7 else PROGRAMS)
        words = [self._word(name) for _ in range(self._rng.randint(0, 4))]
        if name == "git":
            words.insert(0, self._rng.choice(GIT_COMMANDS))
        elif name == "sed" and self._rng.random() < 0.7:
            words.insert(0, "-n")
        elif name == "[":
            words.append("]")
        return " ".join([name, *words])

    def _word(self, name: str) -> str:
        rng = self._rng
        kind = rng.random()
        if kind < 0.1:
            return rng.choice(BARE)
        if kind < 0.8 and name in RISKY:
            return shlex.quote(rng.choice(RISKY[name]))
        if kind < 0.35:
            letters = "".join(rng.choice(LETTERS) for _ in range(rng.choice([1, 1, 2, 3])))
            return shlex.quote(f"-{letters}{rng.choice(['', '', rng.choice(VALUES)])}")
        known = options_of(name)
        if kind < 0.5 and known:
            option = rng.choice(known)
            option = option[: rng.randint(4, len(option))] if rng.random() < 0.2 else option
            return shlex.quote(option + (rng.choice(VALUES) if "=" in option else ""))
        return shlex.quote(rng.choice(VALUES))


LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True, slots=True)
class Range:
    """A folder in which nothing may change, and the mark that a tripwire leaves."""

    work: Path
    programs: Path
    mark: Path

    def contents(self) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(self.work)): path.read_bytes() if path.is_file() else None
            for path in sorted(self.work.rglob("*"))
            # git refreshes its index when it reads files.
            if path.name != "index"
        }

    def run(self, shell: str, script: str, *, traced: bool) -> None:
        prefix: list[str] = []
        if traced:
            names = "trace=execve,execveat"
            prefix = [
                shutil.which("strace") or "",
                "-f",
                "-qq",
                "-s",
                "4096",
                "-e",
                names,
                "-o",
                f"{self.mark}.trace",
            ]
        subprocess.run(
            [*prefix, shutil.which(shell) or shell, "-c", script],
            cwd=self.work,
            env={"PATH": str(self.programs), "HOME": str(self.work), "x": "-omade"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=30,
        )
        if traced:
            self._check_trace(Path(f"{self.mark}.trace").read_text(errors="replace"))

    def _check_trace(self, trace: str) -> None:
        started = re.findall(r'exec(?:ve|veat)\("([^"]*)".* = 0$', trace, re.MULTILINE)
        strange = {Path(name).name for name in started} - {*PROGRAMS, *SHELLS}
        assert not strange, strange


def write_tripwire(program: Path, mark: Path) -> None:
    program.write_text(f"#!/bin/sh\n: > {mark}\n")
    program.chmod(0o755)


@pytest.fixture
def place(tmp_path: Path) -> Range:
    place = Range(tmp_path / "work", tmp_path / "bin", tmp_path / "mark")
    (place.work / "-x").mkdir(parents=True)
    for name in ("1", "5", "10", "x"):
        (place.work / name).mkdir()
        write_tripwire(place.work / name / "ls", place.mark)
    (place.work / "in").write_text("1 b\n2 a\n2 a\n")
    (place.work / "other").write_text("1 c\n")
    place.programs.mkdir()
    for name in PROGRAMS:
        path = shutil.which(name)
        if path is not None:
            (place.programs / name).symlink_to(path)
    for name in TRIPWIRES:
        write_tripwire(place.programs / name, place.mark)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(place.work)]
    for words in (["init", "-q"], ["add", "in"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    return place


def run_all(place: Range, scripts: Iterable[str], *, traced: bool = False) -> None:
    """Run those scripts that are judged safe, and check for changes after each."""
    before = place.contents()
    shells = cycle(SHELLS)
    for script in scripts:
        # `tail -f` and the like do not end.
        if not is_known_safe(["bash", "-c", script]) or re.search(r"tail.*-\w*[fF]|follow", script):
            continue
        place.run(next(shells), script, traced=traced)
        assert (script, place.mark.exists()) == (script, False)
        assert (script, place.contents()) == (script, before)


@pytest.mark.timeout(0 if EXAMPLES else 60)
def test_random_words_change_nothing_and_start_nothing(place: Range) -> None:
    seed = random.SystemRandom().randrange(2**32) if EXAMPLES else 1
    writer = Writer(random.Random(seed))  # noqa: S311 - repeatable, not secret
    traced = bool(EXAMPLES) and shutil.which("strace") is not None
    run_all(place, (writer.script() for _ in range(EXAMPLES or 200)), traced=traced)


@pytest.mark.timeout(0 if EXAMPLES else 60)
def test_risky_words_in_any_order_change_nothing_and_start_nothing(place: Range) -> None:
    """All orders of up to three words in a long run, and some of them in a short one."""
    scripts = [
        # If PATH was changed, `ls` is another program.
        f"{shlex.join([name, *words])}; ls"
        for name, known in RISKY.items()
        for count in range(1, 4)
        for words in product(known, repeat=count)
    ]
    rng = random.Random(1)  # noqa: S311 - repeatable, not secret
    run_all(place, scripts if EXAMPLES else rng.sample(scripts, 250))
