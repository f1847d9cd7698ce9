"""Which server program is started when only a name, or nothing, is given."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from treadle import ServerUnavailable
from treadle.client._runtime.find import find_command


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_default_is_the_program_beside_this_python() -> None:
    beside = Path(sys.executable).with_name("treadle")
    assert find_command(environ={"PATH": ""}) == [str(beside), "app-server"]


def test_an_environment_variable_names_another(tmp_path: Path) -> None:
    codex = program(tmp_path, "codex")
    environ = {"PATH": str(tmp_path), "TREADLE_APP_SERVER": "codex"}
    assert find_command(environ=environ) == [str(codex), "app-server"]
    environ["TREADLE_APP_SERVER"] = "/opt/other"
    assert find_command(environ=environ) == ["/opt/other", "app-server"]


def test_codex_is_found_on_the_path_or_in_the_official_sdk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = ModuleType("codex_cli_bin")
    bundled.__spec__ = ModuleSpec("codex_cli_bin", None)
    vars(bundled)["bundled_codex_path"] = lambda: tmp_path / "bundled"
    monkeypatch.setitem(sys.modules, "codex_cli_bin", bundled)
    assert find_command("codex", {"PATH": ""}) == [str(tmp_path / "bundled"), "app-server"]
    codex = program(tmp_path, "codex")
    assert find_command("codex", {"PATH": str(tmp_path)}) == [str(codex), "app-server"]


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ServerUnavailable, match="there is no program 'nonesuch' on PATH"):
        find_command("nonesuch", {"PATH": ""})
