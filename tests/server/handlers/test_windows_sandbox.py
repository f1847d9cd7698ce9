"""`windowsSandbox/*` on a system that is not Windows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.serving import configuration, refusal, result, serving
from treadle.protocol.base import JsonValue


async def test_the_sandbox_of_windows_is_not_configured(tmp_path: Path) -> None:
    """Upstream, on Linux."""
    async with serving(configuration(tmp_path / "home")) as peer:
        assert await result(peer, "windowsSandbox/readiness") == {"status": "notConfigured"}


@pytest.mark.parametrize(("mode", "name"), [("elevated", "elevated"), ("unelevated", "legacy")])
async def test_a_setup_starts_and_fails(tmp_path: Path, mode: str, name: str) -> None:
    """Upstream, on Linux: its clients show the text."""
    async with serving(configuration(tmp_path / "home")) as peer:
        answer = await result(
            peer, "windowsSandbox/setupStart", {"mode": mode, "cwd": str(tmp_path)}
        )
        completed = await peer.receive()

    assert answer == {"started": True}
    assert completed["method"] == "windowsSandbox/setupCompleted"
    assert completed["params"] == {
        "mode": mode,
        "success": False,
        "error": f"{name} Windows sandbox setup is only supported on Windows",
    }


@pytest.mark.parametrize(
    ("params", "path"),
    [({}, "mode"), ({"mode": "x"}, "mode"), ({"mode": "elevated", "cwd": "a"}, "cwd")],
)
async def test_wrong_params_are_refused_by_their_name(
    tmp_path: Path, params: JsonValue, path: str
) -> None:
    async with serving(configuration(tmp_path / "home")) as peer:
        error = await refusal(peer, "windowsSandbox/setupStart", params)

    assert error["code"] == -32600
    assert path in error["message"]
