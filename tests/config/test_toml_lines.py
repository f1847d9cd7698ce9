"""The line of a value in a TOML document."""

from __future__ import annotations

from pathlib import Path as FolderPath

import pytest

from treadle.config.hooks.parse import Path
from treadle.config.hooks.toml_lines import TomlTable, lines_of

DOCUMENT = '''\
model = "m"
text = """
[[hooks.Stop]]
"""  # not a table

[[hooks.Stop]]
[[hooks.Stop.hooks]]
type = "command"

[[ hooks . "Stop" ]] # the second
matcher = 'x'
  [[hooks.Stop.hooks]]
type = "command"
command = \'\'\'
[hooks]
\'\'\'
[[hooks.Stop.hooks]]
'type' = "other"

[hooks]
PreToolUse = [
  { matcher = "[" },
]
Pre.ToolUse = 1

[profiles.p.hooks]
Stop = []
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("model",), 1),
        (("hooks", "Stop", 0), 6),
        (("hooks", "Stop", 0, "hooks", 0), 7),
        (("hooks", "Stop", 1, "hooks", 0), 12),
        (("hooks", "Stop", 1, "hooks", 0, "command"), 14),
        (("hooks", "Stop", 1, "hooks", 1), 17),
        (("hooks", "Stop", 1, "hooks", 1, "type"), 18),
        (("hooks", "Stop", 1, "hooks", 9), 10),
        (("hooks", "PreToolUse", 0, "hooks", 0), 21),
        (("hooks", "Pre", "ToolUse"), 24),
        (("hooks", "Nope"), 20),
        (("profiles", "p", "hooks", "Stop", 3), 27),
        (("nothing",), None),
        ((), None),
    ],
)
def test_a_value_is_on_the_line_of_its_key_or_innermost_table(
    tmp_path: FolderPath, path: Path, line: int | None
) -> None:
    for number, text in enumerate((DOCUMENT, DOCUMENT.replace("\n", "\r\n"))):
        file = tmp_path / f"{number}.toml"
        file.write_bytes(text.encode())
        assert TomlTable(str(file)).line_of(path) == line


def test_a_table_inside_the_file_has_its_own_lines(tmp_path: FolderPath) -> None:
    file = tmp_path / "config.toml"
    file.write_text(DOCUMENT)
    profile = TomlTable(str(file), ("profiles", "p"))
    assert [profile.line_of(("hooks", "Stop")), profile.line_of(("hooks",))] == [27, 26]


def test_a_file_that_is_gone_or_not_text_has_no_lines(tmp_path: FolderPath) -> None:
    file = tmp_path / "config.toml"
    assert TomlTable(str(file)).line_of(("hooks",)) is None
    file.write_bytes(b"[hooks]\n\xff")
    assert TomlTable(str(file)).line_of(("hooks",)) is None


@pytest.mark.parametrize("text", ["[" * 300_000, "a." * 150_000, "'" * 300_000, " " * 300_000])
def test_a_long_line_is_read_in_linear_time(text: str) -> None:
    """Ours: a project's file has hooks."""
    assert lines_of(text) == {}
