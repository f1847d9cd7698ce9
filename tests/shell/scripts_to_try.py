"""Scripts and parts of scripts, from which tests build new ones."""

from __future__ import annotations

from typing import Final

PIECES: Final = [
    *("a", "b", "-x", "1", "22", "é", "evil", "x=1", "=", "'", '"', "\\", "$", "`", "#", "!"),
    *(" ", " ", " ", "\t", "\n", ";", "; ", "&", " && ", "|", " | ", "||", "|&", "(", ")"),
    *(" ( ", "{", "}", "{ ", "; }", "~", "*", "?", "[", "]", "^", "%", ",", "<", ">", ">>"),
    *("<<", "<<<", "2>&1", ">/dev/null", "<a", "<(", ">(", "$(", "${", "$((", "))", "${x}"),
    *("$x", "$'", '$"', "\\\n", "<<E\n", "\nE\n", "<<'E'\n", "<<-E\n", "'a b'", '"c d"', "if "),
    *("then ", "fi", "do ", "done", "while ", "for i in ", "case ", "esac", "function f "),
    *("f() ", "[[ ", " ]]", "! ", "time ", "coproc ", "a[0]=", "a+=", "export ", "{a}>", "&>"),
    *(">&", "<&", ">|", "<>", "p ", "="),
]

SEEDS: Final = [
    *("ls -la", "cat 'a b' \"c d\" e'f'\"g\"", "ls && pwd || id | wc -l; date", "ls &\npwd"),
    *("! ls", "(ls; pwd) > /dev/null", "{ ls; pwd; } 2>&1", "cat < a > /dev/null"),
    *("cat <<E\nx $(ls)\nE\n", "cat <<'E' | wc -l\n$(rm a)\nE\nls", "cat <<-E\n\tx\n\tE\n"),
    *('cat <<< "$x"', "echo `ls`", "echo $(cat $(ls))", 'echo "a $(ls "b c") d"'),
    *("diff <(ls a) <(ls b)", "echo ${x} $y $((1 + 2))", "x=1 ls", "x=1; ls", "a[0]=1 ls"),
    *("if ls; then pwd; else id; fi", "for i in a b; do cat $i; done", "while ls; do pwd; done"),
    *("ls # comment; rm a\npwd", "echo a\\ b \\; c", "ls \\\n -la", "git log"),
    *("echo 'it'\"'\"'s'", "printf '%s\\n' a | sort | uniq -c", "rg -n 'x|y' src | head -5"),
    *("ls;pwd;", "find . -name '*.py' -type f", "sed -n '1,5p' a", "echo {a,b} ~ * ? [ab]"),
    *("echo $'a\\tb'", "ls |& wc"),
]
