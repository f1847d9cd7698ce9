"""Files that decide what the server does stay closed when they do not exist yet or are replaced."""

from __future__ import annotations

import site
from pathlib import Path

import pytest

from tests.attack.test_home_and_code import WRITES, confine
from tests.attack.test_planted_settings import NO_TEMPORARY_FOLDERS
from tests.harness.commands import bench
from tests.harness.sandbox import find_backend
from tests.sandbox.commands import names, run
from treadle.protocol.base import JsonValue
from treadle.sandbox.protection import Protection, code_paths


@pytest.mark.parametrize("place", ["", "dotfiles/"])
async def test_settings_behind_links_stay_protected_when_they_are_written(
    home: Path, place: str
) -> None:
    """The kernel detaches what is mounted on a file when another one takes its place."""
    async with bench(home, NO_TEMPORARY_FOLDERS, **WRITES) as bench_:
        ws, settings = bench_.stage.workspace, home / "config.toml"
        target = ws / place / "config.toml"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(settings.read_bytes())
        settings.unlink()
        settings.symlink_to(target)
        wait = "echo ready; until test -e go; do sleep 0.01; done"
        script = f"{wait}; echo 'evil = 1' >> {place}config.toml"
        turn_id = await bench_.start_call("exec_command", {"cmd": script, "yield_time_ms": 30000})
        await bench_.client.until("item/commandExecution/outputDelta")
        change: JsonValue = {"keyPath": "model_verbosity", "value": "low"}
        await bench_.client.request("config/value/write", {**change, "mergeStrategy": "replace"})
        (ws / "go").touch()
        await bench_.client.end_of(turn_id)
        assert "low" in target.read_text()
        assert "evil" not in target.read_text()
        assert names(target.parent) == sorted({"config.toml", *([] if place else ["go"])})


@pytest.mark.parametrize("exists", [False, True])
async def test_packages_of_the_user_cannot_be_planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """An interpreter outside any environment runs `usercustomize.py` from there at its start."""
    packages = tmp_path / "ws" / ".local" / "lib" / "site-packages"
    (packages if exists else tmp_path / "ws").mkdir(parents=True)
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(site, "USER_SITE", str(packages))
    confinement = confine(Protection(closed=code_paths()[0]), tmp_path / "ws")
    assert not confinement.may_write(str(packages / "usercustomize.py"))
    assert confinement.may_write(str(tmp_path / "ws" / "other"))
    if exists or (await find_backend()).name == "bubblewrap":
        script = "d=.local/lib/site-packages; mkdir -p $d; touch $d/usercustomize.py"
        await run(["/bin/sh", "-c", script], confinement, cwd=tmp_path / "ws")
        assert not (packages / "usercustomize.py").exists()
