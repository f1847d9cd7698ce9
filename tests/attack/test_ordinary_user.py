"""The subjects of the attack suite hold for an ordinary user too, when root runs the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import soak
from tests.harness.ordinary_user import run_as_ordinary_user

# Root has no advantage in these: they are about time, memory, text and clients, and neither about
# permissions nor about commands. They run as an ordinary user with `make soak`.
SAME_FOR_ALL = frozenset(
    """
    authorization bursts clock_set_back damaged_store freezes keys_in_errors large_texts
    last_message linear_patterns linear_time locked_index long_threads many_roots mcp_floods
    mcp_lists model_floods oauth_floods output_flood patterns power_cut project_settings redirects
    repeated_call_ids reruns safe_commands search_bounds slow_steps strangers terminal_questions
    turn_always_ends watch_floods
    """.split()
)
SUBJECTS = sorted(
    path.stem.removeprefix("test_")
    for path in Path(__file__).parent.glob("test_*.py")
    if path != Path(__file__)
)
CHOSEN = [name for name in SUBJECTS if soak.IS_FULL or name not in SAME_FOR_ALL]
# A process for each file would spend most of its time on its start.
GROUPS = [CHOSEN[first::3] for first in range(3)]


@pytest.mark.ordinary_user
@pytest.mark.timeout(300)
@pytest.mark.parametrize("subjects", GROUPS, ids=" ".join)
def test_subjects_hold_for_an_ordinary_user(tmp_path: Path, subjects: list[str]) -> None:
    run_as_ordinary_user([f"tests/attack/test_{name}.py" for name in subjects], tmp_path)


def test_every_subject_without_an_ordinary_user_exists() -> None:
    assert set(SUBJECTS) >= SAME_FOR_ALL
