"""The read-only sub-commands of git, and their options.

git reads the settings of the repository, and some of them name programs: a file system monitor, a
filter, an external diff. The reference calls these commands safe nevertheless, and so do we inside
the sandbox (`is_known_safe` has the parameter `trusts_repository` for the rest). Options that start
such a program are left out, and so are formats that verify signatures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from treadle.shell.options import AllowedArguments
from treadle.shell.words import Word


def accepts_git(words: Sequence[Word]) -> bool:
    """Return whether git only reads with these words."""
    rest = list(words)
    while rest and rest[0].expansion == "none" and rest[0].text in _GLOBAL:
        del rest[0]
    if not rest or rest[0].expansion != "none":
        return False
    name, given = rest[0].text, rest[1:]
    allowed = _find(name)
    if allowed is None or not allowed.accepts(given):
        return False
    # A bare name makes a branch, unless the list is asked for. In old releases -l does not do that.
    return name != "branch" or any(word.text == "--list" for word in given) or _only_options(given)


def _only_options(words: Sequence[Word]) -> bool:
    return all(word.expansion == "none" and word.text.startswith("-") for word in words)


@cache
def _find(name: str) -> AllowedArguments | None:
    text = _READERS.get(name)
    limit = 0 if name == "remote" else None
    return None if text is None else AllowedArguments(text, max_operands=limit)


_GLOBAL: Final = frozenset("--no-pager -P -p --paginate --no-optional-locks".split())

_DIFF: Final = """
    -puszabwWRD -U: -B? -M? -C? -X? -l: -S: -G: -I: --patch --no-patch --unified= --raw
    --patch-with-raw --minimal --patience --histogram --anchored= --diff-algorithm= --stat?
    --compact-summary --numstat --shortstat --dirstat? --cumulative --summary --patch-with-stat
    --name-only --name-status --color? --no-color --color-moved? --no-color-moved --word-diff?
    --word-diff-regex= --color-words? --no-renames --rename-empty --no-rename-empty --check
    --ws-error-highlight= --full-index --binary --abbrev? --break-rewrites? --find-renames?
    --find-copies? --find-copies-harder --irreversible-delete --diff-filter= --pickaxe-all
    --pickaxe-regex --relative? --no-relative --text --ignore-cr-at-eol --ignore-space-at-eol
    --ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-matching-lines=
    --inter-hunk-context= --function-context --exit-code --quiet --no-ext-diff --no-textconv
    --ignore-submodules? --src-prefix= --dst-prefix= --no-prefix --line-prefix=
"""
_LOG: Final = f"""
    {_DIFF} -iEFPgcmtr -n: -L: -# --oneline --graph --no-graph --decorate? --no-decorate
    --decorate-refs= --decorate-refs-exclude= --all --branches? --tags? --remotes? --glob=
    --exclude= --since= --after= --until= --before= --since-as-filter= --max-age= --min-age=
    --author= --committer= --grep= --grep-reflog= --all-match --invert-grep
    --regexp-ignore-case --basic-regexp --extended-regexp --fixed-strings --perl-regexp
    --merges --no-merges --min-parents= --max-parents= --no-min-parents --no-max-parents
    --first-parent --not --reverse --follow --full-history --dense --sparse --simplify-merges
    --simplify-by-decoration --ancestry-path? --topo-order --date-order --author-date-order
    --date= --relative-date --parents --children --left-right --cherry --cherry-pick
    --cherry-mark --left-only --right-only --boundary --walk-reflogs --reflog --abbrev-commit
    --no-abbrev-commit --pretty?% --format=% --no-walk? --skip= --max-count= --source
    --use-mailmap --mailmap --no-mailmap --full-diff --notes? --no-notes --encoding=
    --show-pulls --cc --diff-merges= --no-diff-merges --combined-all-paths --log-size
    --expand-tabs? --no-expand-tabs --clear-decorations
"""

_READERS: Final[Mapping[str, str]] = {
    "blame": """
        -bsltefnpwc -M? -C? -L: --root --show-email --show-name --show-number --porcelain
        --line-porcelain --incremental --abbrev= --date= --since= --reverse --show-stats
        --ignore-rev= --ignore-revs-file= --first-parent --minimal --no-progress --color-lines
        --color-by-age
    """,
    "branch": """
        -arvli --all --remotes --verbose --list --show-current --color? --no-color --format=%
        --sort=% --column? --no-column --ignore-case --abbrev? --no-abbrev --contains?
        --no-contains? --merged? --no-merged?
    """,
    "diff": f"{_DIFF} -0123 --cached --staged --merge-base --base --ours --theirs",
    "grep": """
        -niwvEGFPlLchHoqpWaIzr -e: -f: -m: -A: -B: -C: -# --line-number --ignore-case
        --word-regexp --invert-match --extended-regexp --basic-regexp --fixed-strings
        --perl-regexp --files-with-matches --name-only --files-without-match --count --full-name
        --only-matching --quiet --heading --break --show-function --function-context --text
        --cached --untracked --exclude-standard --no-exclude-standard --max-depth= --max-count=
        --after-context= --before-context= --context= --and --or --not --all-match --color?
        --no-color --column --null --recursive --no-recursive --threads= --no-textconv
    """,
    "log": _LOG,
    "ls-files": """
        -cdmoisukztvf -x: -X: --cached --deleted --modified --others --ignored --stage --unmerged
        --killed --directory --no-empty-directory --eol --full-name --error-unmatch
        --exclude-standard --exclude= --exclude-from= --exclude-per-directory= --abbrev? --debug
        --deduplicate --with-tree= --format=% --sparse
    """,
    "ls-tree": """
        -drtlz --long --name-only --name-status --object-only --full-name --full-tree --abbrev?
        --format=%
    """,
    "merge-base": "-a --all --octopus --independent --is-ancestor --fork-point",
    "remote": "-v --verbose",
    "rev-parse": """
        -q --verify --quiet --short? --abbrev-ref? --symbolic --symbolic-full-name
        --show-toplevel --show-prefix --show-cdup --git-dir --absolute-git-dir --git-common-dir
        --is-inside-work-tree --is-inside-git-dir --is-bare-repository --is-shallow-repository
        --show-superproject-working-tree --all --branches? --tags? --remotes? --glob= --git-path=
        --path-format= --default= --show-object-format? --revs-only --no-revs --flags --no-flags
        --not
    """,
    "show": f"{_LOG} --show-notes?",
    "status": """
        -sbvz -u? --short --branch --show-stash --porcelain? --long --verbose --untracked-files?
        --ignore-submodules? --ignored? --column? --no-column --ahead-behind --no-ahead-behind
        --renames --no-renames --find-renames?
    """,
}
