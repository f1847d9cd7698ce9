"""Edits to a configuration text that keep its comments and its style."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.config.edit.edits import BadEdit, TableEdit, apply
from treadle.config.edit.toml_text import rewrite
from treadle.protocol.base import JsonValue

TEXT = """\
# My settings.

model = "a" # the good one

# How commands are kept in.
[sandbox_workspace_write]
network_access = true # for npm

# How it looks.
[tui]
theme = "x"
[tui.keys]
quit = "q"

# Our provider.
[model_providers.mine]
name = "Mine"
"""


def edited(text: str, *edits: TableEdit) -> str:
    before = tomllib.loads(text)
    return rewrite(text, before, apply(before, edits))


def test_a_value_changes_in_its_place_and_keeps_the_comment_beside_it() -> None:
    written = edited(TEXT, TableEdit(("model",), "b"), TableEdit(("tui", "keys", "quit"), "x"))

    assert written == TEXT.replace('"a"', '"b"').replace('"q"', '"x"')


def test_new_keys_come_before_the_comment_of_the_next_table() -> None:
    edits = [
        TableEdit(("model_verbosity",), "low"),
        TableEdit(("sandbox_workspace_write", "exclude_slash_tmp"), True),
        TableEdit(("tui", "colours", "red"), 1),
    ]

    assert edited(TEXT, *edits) == TEXT.replace("one\n", 'one\nmodel_verbosity = "low"\n').replace(
        "npm\n", "npm\nexclude_slash_tmp = true\n"
    ).replace('quit = "q"\n', 'quit = "q"\n\n[tui.colours]\nred = 1\n')


def test_a_new_table_comes_last() -> None:
    written = edited(TEXT, TableEdit(("projects", "/a.b"), {"trust_level": "trusted"}))

    assert written == f'{TEXT}\n[projects."/a.b"]\ntrust_level = "trusted"\n'


def test_a_removed_key_takes_no_comment_of_others_with_it() -> None:
    written = edited(TEXT, TableEdit(("tui",), None), TableEdit(("sandbox_workspace_write",), None))

    assert tomllib.loads(written).keys() == {"model", "model_providers"}
    for comment in ("# My settings.", "# How it looks.", "# Our provider.\n[model_providers"):
        assert comment in written


def test_a_text_of_only_comments_keeps_them() -> None:
    assert edited("# soon\n", TableEdit(("model",), "b")) == '# soon\nmodel = "b"\n'


def test_line_endings_are_kept() -> None:
    dos = TEXT.replace("\n", "\r\n")

    assert edited(dos, TableEdit(("model",), "b")) == dos.replace('"a"', '"b"')


def test_inline_tables_stay_inline() -> None:
    written = edited('tui = { theme = "a" } # nice\n', TableEdit(("tui", "deep"), {"a": 1}))

    assert tomllib.loads(written) == {"tui": {"theme": "a", "deep": {"a": 1}}}
    assert (written.count("\n"), written.endswith("# nice\n")) == (1, True)


def test_a_list_of_tables_can_be_extended() -> None:
    text = '[[skills.config]]\nname = "a" # off\nenabled = false\n\n# next\n[tui]\ntheme = "x"\n'
    entries = [{"name": "a", "enabled": True}, {"name": "b", "enabled": False}]

    assert edited(text, TableEdit(("skills", "config"), entries)) == (
        '[[skills.config]]\nname = "a" # off\nenabled = true\n'
        '[[skills.config]]\nname = "b"\nenabled = false\n'
        '\n# next\n[tui]\ntheme = "x"\n'
    )


def test_dotted_keys_can_be_added_among_others() -> None:
    text = 'projects."/a".trust_level = "trusted"\nmodel = "m" # mine\n'
    written = edited(text, TableEdit(("projects", "/b", "trust_level"), "untrusted"))

    assert tomllib.loads(written) == {
        "model": "m",
        "projects": {"/a": {"trust_level": "trusted"}, "/b": {"trust_level": "untrusted"}},
    }
    assert 'model = "m" # mine\n' in written


NAMES = st.sampled_from(["a", "b", "c", "x.y"])
LINES = st.builds(
    "{}{}{}".format,
    st.lists(st.sampled_from(["a", "b", "c", '"x.y"']), min_size=1, max_size=3).map(".".join),
    st.sampled_from([" = 1", ' = "t" # c', " = [1, { a = 2 }]", " = { b = 1, c = {} }"]),
    st.just("\n"),
)
HEADINGS = st.builds(
    lambda names, brackets: f"{brackets}{'.'.join(names)}{']' * len(brackets)}\n",
    st.lists(st.sampled_from(["a", "b", "c", '"x.y"']), min_size=1, max_size=3),
    st.sampled_from(["[", "[["]),
)
NOTES = st.sampled_from(["\n", "# note\n"])
VALUES = st.recursive(
    st.sampled_from([1, True, 2.5, 'q\n"']),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=5,
)
EDITS = st.builds(
    TableEdit, st.lists(NAMES, min_size=1, max_size=3).map(tuple), st.none() | VALUES, st.booleans()
)


def readable(lines: list[str]) -> str:
    """Return as many of the lines as are valid together."""
    text = ""
    for line in lines:
        try:
            tomllib.loads(text + line)
        except tomllib.TOMLDecodeError:
            continue
        text += line
    return text


@settings(max_examples=150, deadline=None)
@given(
    st.lists(LINES | HEADINGS | NOTES, max_size=10).map(readable),
    st.lists(EDITS, min_size=1, max_size=3),
)
def test_any_text_has_the_edited_content_afterwards(text: str, edits: list[TableEdit]) -> None:
    before = tomllib.loads(text)
    try:
        after = apply(before, edits)
    except BadEdit:
        return

    assert tomllib.loads(rewrite(text, before, after)) == after


@pytest.mark.parametrize("value", [1.0, True, "1"])
def test_a_value_of_another_type_is_another_value(value: JsonValue) -> None:
    (written,) = tomllib.loads(edited("a = 1\n", TableEdit(("a",), value))).values()

    assert (type(written), written) == (type(value), value)
