"""Tests of finding a patch in a command."""

from __future__ import annotations

import pytest

from treadle.engine.patch.heredoc import HeredocPatch, find_patch

PATCH = "*** Begin Patch\n*** Add File: n\n+it costs $5\n*** End Patch"


@pytest.mark.parametrize(
    ("script", "folder"),
    [
        (f"apply_patch <<'EOF'\n{PATCH}\nEOF", None),
        (f'applypatch << "PATCH"\n{PATCH}\nPATCH\n\n', None),
        (f"\napply_patch <<EOF\n{PATCH}\nEOF\n", None),
        (f"cd d/e && apply_patch <<'EOF'\n{PATCH}\nEOF", "d/e"),
        (f"cd 'd e' && apply_patch <<'EOF'\n{PATCH}\nEOF", "d e"),
        (f'cd "d e" && apply_patch <<-EOF\n\t{PATCH}\n\tEOF', "d e"),
        (f"apply_patch '{PATCH}'", None),
        (PATCH, None),
    ],
)
@pytest.mark.parametrize("shell", [["/bin/bash", "-lc"], ["sh", "-c"], ["zsh", "-l", "-c"]])
def test_a_script_that_only_applies_a_patch_is_recognized(
    script: str, folder: str | None, shell: list[str]
) -> None:
    found = find_patch([*shell, script])

    assert found is not None
    assert (found.text.strip(), found.folder) == (PATCH, folder)


def test_the_apply_patch_command_is_recognized() -> None:
    assert find_patch(["apply_patch", PATCH]) == HeredocPatch(PATCH)
    assert find_patch(["applypatch", "nonsense"]) == HeredocPatch("nonsense")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["apply_patch"],
        ["apply_patch", PATCH, "more"],
        ["python", "-c", f"apply_patch <<'EOF'\n{PATCH}\nEOF"],
        ["bash", "-lc", "echo apply_patch"],
        ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF\necho done"],
        ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF\nrm -rf x\nEOF"],
        ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\n"],
        ["bash", "-lc", f"apply_patch <<'EOF' && rm x\n{PATCH}\nEOF"],
        ["bash", "-lc", f"echo x; apply_patch <<'EOF'\n{PATCH}\nEOF"],
        ["bash", "-lc", f"cd $(pwd) && apply_patch <<'EOF'\n{PATCH}\nEOF"],
        ["bash", "-lc", f'cd "$HOME" && apply_patch <<EOF\n{PATCH}\nEOF'],
        ["bash", "-lc", f"cd ~/x && apply_patch <<EOF\n{PATCH}\nEOF"],
        ["bash", "-lc", f"apply_patch '{PATCH}' && rm x"],
        ["bash", "-lc", f"{PATCH}\nrm x"],
    ],
)
def test_a_command_that_does_anything_else_is_not_recognized(argv: list[str]) -> None:
    assert find_patch(argv) is None
