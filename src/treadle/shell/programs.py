"""Programs that only read, and the options with which they do so on every system.

Each list was compared with GNU coreutils, BusyBox, the BSDs and macOS, and uutils. An option that
writes, starts a program or changes the system on one of them is left out for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from treadle.shell.options import AllowedArguments


@cache
def find_program(name: str) -> AllowedArguments | None:
    """Return the allowed arguments of a program; None if it is unknown."""
    text = _READERS.get(name)
    if text is not None:
        takes_anything = name in _TAKE_ANYTHING
        return AllowedArguments(f"{text} --help --version", takes_anything=takes_anything)
    return _LIMITED.get(name)


# No option of any implementation makes these do more than read and print.
_TAKE_ANYTHING: Final = frozenset("basename cat dirname head ls pwd tail wc".split())

_GREP: Final = """
    -EFGPUVabcHhiILlnoqrRsTuvwxyzZp -e: -f: -m: -A: -B: -C: -D: -d: -#
    --extended-regexp --fixed-strings --basic-regexp --perl-regexp --regexp= --file= --ignore-case
    --no-ignore-case --word-regexp --line-regexp --null-data --no-messages --invert-match
    --max-count= --byte-offset --line-number --line-buffered --with-filename --no-filename --label=
    --only-matching --quiet --silent --binary-files= --text --directories= --devices= --recursive
    --dereference-recursive --include= --exclude= --exclude-from= --exclude-dir= --include-dir=
    --files-without-match --files-with-matches --count --initial-tab --null --before-context=
    --after-context= --context= --color? --colour? --group-separator= --no-group-separator --binary
"""
_DIGEST: Final = """
    -bctwz --binary --check --tag --text --zero --ignore-missing --quiet --status --strict --warn
"""
_EZA: Final = """
    -1lGxRTFaAdDrsBbghHiImnSuUXZ@ -L: -I: -s: -t: --all --almost-all --list-dirs --only-dirs
    --only-files --oneline --long --grid --across --recurse --tree --classify? --color? --colour?
    --icons? --no-icons --level= --ignore-glob= --git-ignore --group-directories-first --reverse
    --sort= --binary --bytes --group --header --inode --links --modified --changed --accessed
    --created --time= --time-style= --no-permissions --no-filesize --no-user --no-time --git
"""
_FD: Final = """
    -HIusigFaLp01qhV -d: -t: -e: -E: -c: -j: -S: -o: --hidden --no-hidden --no-ignore
    --no-ignore-vcs --no-ignore-parent --unrestricted --case-sensitive --ignore-case --glob --regex
    --fixed-strings --absolute-path --relative-path --follow --full-path --print0 --max-depth=
    --min-depth= --exact-depth= --type= --extension= --exclude= --prune --size= --changed-within=
    --changed-before= --owner= --color= --threads= --max-results= --quiet --show-errors
    --base-directory= --search-path= --strip-cwd-prefix --one-file-system --and= --ignore-file=
"""
_RG: Final = """
    -FHILNPSUVabchilnopqsuvwx0. -A: -B: -C: -E: -M: -T: -d: -e: -f: -g: -j: -m: -r: -t:
    --after-context= --auto-hybrid-regex --before-context= --binary --block-buffered --byte-offset
    --case-sensitive --color= --colors= --column --no-column --context= --context-separator=
    --no-context-separator --count --count-matches --crlf --debug --dfa-size-limit= --encoding=
    --engine= --field-context-separator= --field-match-separator= --file= --files
    --files-with-matches --files-without-match --fixed-strings --follow --no-follow --glob=
    --glob-case-insensitive --heading --no-heading --hidden --no-hidden --iglob= --ignore-case
    --ignore-file= --ignore-file-case-insensitive --include-zero --invert-match --json
    --line-buffered --line-number --no-line-number --line-regexp --max-columns=
    --max-columns-preview --max-count= --max-depth= --maxdepth= --max-filesize= --mmap --no-mmap
    --multiline --multiline-dotall --no-config --no-filename --no-ignore --no-ignore-dot
    --no-ignore-exclude --no-ignore-files --no-ignore-global --no-ignore-messages
    --no-ignore-parent --no-ignore-vcs --no-messages --no-pcre2-unicode --no-require-git
    --no-unicode --null --null-data --one-file-system --only-matching --passthru --path-separator=
    --pcre2 --pcre2-version --pretty --quiet --regex-size-limit= --regexp= --replace= --smart-case
    --sort= --sortr= --stats --stop-on-nonmatch --text --threads= --trim --type= --type-add=
    --type-clear= --type-list --type-not= --unrestricted --vimgrep --with-filename --word-regexp
"""

_READERS: Final[Mapping[str, str]] = {
    "base64": """
        -dDi -w: -b: --decode --wrap= --ignore-garbage --break= --input=
    """,
    "basename": "-az -s: --multiple --suffix= --zero",
    "cat": """
        -AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs
        --show-nonprinting
    """,
    "cksum": f"{_DIGEST} -a: -l: --algorithm= --length= --untagged --raw --base64 --debug",
    "cmp": "-bls -i: -n: --print-bytes --ignore-initial= --verbose --bytes= --quiet --silent",
    "column": "-tnexJ -s: -o: -c: --table --separator= --output-separator= --output-width=",
    "comm": """
        -123iz --check-order --nocheck-order --output-delimiter= --total --zero-terminated
    """,
    "cut": """
        -nswz -b: -c: -d: -f: --bytes= --characters= --delimiter= --fields= --complement
        --only-delimited --output-delimiter= --zero-terminated
    """,
    "df": """
        -abghHiklmPT -B: -t: -x: --all --block-size= --human-readable --si --inodes --local
        --no-sync --output? --portability --total --type= --exclude-type= --print-type
    """,
    "diff": """
        -qscuenypNrtTiEZbwBad -C: -U: -W: -F: -x: -X: -S: -I: -L: -#
        --normal --brief --report-identical-files --context? --unified? --ed --rcs --side-by-side
        --width= --left-column --suppress-common-lines --show-c-function --show-function-line=
        --label= --expand-tabs --initial-tab --tabsize= --suppress-blank-empty --recursive
        --no-dereference --new-file --unidirectional-new-file --ignore-file-name-case
        --no-ignore-file-name-case --exclude= --exclude-from= --starting-file= --from-file=
        --to-file= --ignore-case --ignore-tab-expansion --ignore-trailing-space
        --ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-matching-lines=
        --text --strip-trailing-cr --minimal --horizon-lines= --speed-large-files --color?
    """,
    "dirname": "-z --zero",
    "du": """
        -0aAbcDghHiklLmnPrsSx -B: -d: -t: -I: -X: --null --all --apparent-size --block-size=
        --bytes --total --dereference-args --max-depth= --human-readable --inodes --count-links
        --dereference --no-dereference --separate-dirs --si --summarize --threshold= --time?
        --time-style= --exclude-from= --exclude= --one-file-system
    """,
    "egrep": _GREP,
    "exa": _EZA,
    "expand": "-i -t: -# --initial --tabs=",
    "eza": _EZA,
    "fd": _FD,
    "fdfind": _FD,
    "fgrep": _GREP,
    "fold": "-bcs -w: -# --bytes --characters --spaces --width=",
    "grep": _GREP,
    "groups": "",
    "head": "-qvz -c: -n: -# --bytes= --lines= --quiet --silent --verbose --zero-terminated",
    "id": "-agGnpPruzZF --context --group --groups --name --real --user --zero",
    "join": """
        -iz -a: -e: -j: -o: -t: -v: -1: -2: --ignore-case --check-order --nocheck-order --header
        --zero-terminated
    """,
    "ls": """
        -aAbBcCdDeEfFgGhHiklLmnNoOpPqQrRsStTuUvWxXyZ1@%, -I: -w: --all --almost-all --author
        --escape --block-size= --ignore-backups --color? --directory --dired --classify?
        --file-type --format= --full-time --group-directories-first --no-group --human-readable
        --si --dereference-command-line --dereference-command-line-symlink-to-dir --hide=
        --hyperlink? --indicator-style= --inode --ignore= --kibibytes --dereference
        --numeric-uid-gid --literal --hide-control-chars --show-control-chars --quote-name
        --quoting-style= --reverse --recursive --size --sort= --time= --time-style= --tabsize=
        --width= --context --zero
    """,
    "md5sum": _DIGEST,
    "nl": """
        -p -b: -d: -f: -h: -i: -l: -n: -s: -v: -w: --body-numbering= --section-delimiter=
        --footer-numbering= --header-numbering= --line-increment= --join-blank-lines=
        --number-format= --no-renumber --number-separator= --starting-line-number=
        --number-width=
    """,
    "nproc": "--all --ignore=",
    "numfmt": """
        -z -d: --delimiter= --field= --format= --from= --from-unit= --grouping --header?
        --invalid= --padding= --round= --suffix= --to= --to-unit= --zero-terminated
    """,
    "od": """
        -abcdDefFhHiIlLoOsvxX -A: -j: -N: -S: -t: -w? --address-radix= --endian= --skip-bytes=
        --read-bytes= --strings? --format= --output-duplicates --width? --traditional
    """,
    "paste": "-sz -d: --delimiters= --serial --zero-terminated",
    "pwd": "-LP --logical --physical",
    "readlink": """
        -femnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline
        --quiet --silent --verbose --zero
    """,
    "realpath": """
        -eEmLPqsz --canonicalize-existing --canonicalize-missing --logical --physical --quiet
        --relative-to= --relative-base= --strip --no-symlinks --zero
    """,
    "rev": "-0 --zero",
    "rg": _RG,
    "seq": "-w -s: -# --separator= --equal-width",
    "sha1sum": _DIGEST,
    "sha256sum": _DIGEST,
    "sha512sum": _DIGEST,
    "sort": """
        -bdfgihMnRrVcCmsuz -k: -t: -S: --ignore-leading-blanks --dictionary-order --ignore-case
        --general-numeric-sort --ignore-nonprinting --month-sort --human-numeric-sort
        --numeric-sort --random-sort --reverse --version-sort --sort= --check? --key= --merge
        --stable --field-separator= --unique --zero-terminated --parallel= --batch-size=
        --buffer-size= --debug --random-source=
    """,
    "stat": """
        -LftqnrsxlF -c: --dereference --file-system --format= --printf= --terse
    """,
    "tac": "-br -s: --before --regex --separator=",
    "tail": """
        -fFqrvz -b: -c: -n: -s: -# --bytes= --follow? --lines= --max-unchanged-stats= --pid=
        --quiet --silent --retry --sleep-interval= --verbose --zero-terminated
    """,
    "tr": "-cCdstu --complement --delete --squeeze-repeats --truncate-set1",
    "type": "-aptP",
    "uname": """
        -amnoprsvi --all --kernel-name --nodename --kernel-release --kernel-version --machine
        --processor --hardware-platform --operating-system
    """,
    "wc": "-cLlmw --bytes --chars --lines --max-line-length --words --total=",
    "which": "-as --all",
    "whoami": "",
}

# Programs that differ from the others in how they treat their operands.
_LIMITED: Final[Mapping[str, AllowedArguments]] = {
    # An operand is the new name.
    "hostname": AllowedArguments(max_operands=0),
    # An operand that begins with @ names a file of options, none of which does more than print.
    "strings": AllowedArguments(
        "-afotwd -n: -e: -# --all --print-file-name --bytes= --radix= --encoding="
    ),
    # It takes the letters that follow as further options, and not all releases know `--`.
    "tree": AllowedArguments(
        """
        -adfilxqNQpugshDFvtcUrSAnCXJ -L;# -P; -I; --dirsfirst --filesfirst --noreport --gitignore
        --prune --matchdirs --ignore-case --du --si --inodes --device --nolinks --metafirst
        --filelimit=# --charset= --timefmt= --sort=
        """,
        has_end=False,
    ),
    # The second operand is where it writes.
    "uniq": AllowedArguments(
        """
        -cdDuiz -f:# -s:# -w:# --count --repeated --unique --ignore-case --skip-fields=#
        --skip-chars=# --check-chars=# --zero-terminated --all-repeated? --group?
        """,
        max_operands=1,
        options_first=True,
    ),
}
