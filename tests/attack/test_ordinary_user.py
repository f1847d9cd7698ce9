"""Every subject of the attack suite holds for an ordinary user too, when root runs the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.ordinary_user import run_as_ordinary_user

THEMES = sorted(
    path.name for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("theme", THEMES)
def test_subject_holds_for_an_ordinary_user(tmp_path: Path, theme: str) -> None:
    run_as_ordinary_user(f"tests/attack/{theme}", tmp_path)
