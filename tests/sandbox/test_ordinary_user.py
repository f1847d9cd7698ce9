"""The sandbox tests hold for an ordinary user too, when root runs the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.ordinary_user import run_as_ordinary_user


@pytest.mark.ordinary_user
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "names",
    [
        ["test_files", "test_protected", "test_network", "test_roots", "network/test_proxy"],
        ["supervisor/test_leftovers", "supervisor/test_process", "backends/test_kernel"],
    ],
    ids=["policies", "processes"],
)
def test_the_same_holds_for_an_ordinary_user(tmp_path: Path, names: list[str]) -> None:
    run_as_ordinary_user([f"tests/sandbox/{name}.py" for name in names], tmp_path)
