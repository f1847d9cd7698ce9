"""`[sandbox.limits]` in the layers of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.serving import configuration
from treadle.config.file import ConfigError


def test_limits_are_read_from_the_file_and_the_command_line(home: Path) -> None:
    text = '[sandbox.limits]\nprocesses = 100\nmemory = "1GiB"\n'
    limits = configuration(home, text, "sandbox.limits.processes=200").effective().command_limits()

    assert limits is not None
    assert (limits.processes, limits.memory) == (200, 1024**3)


def test_without_the_table_nothing_is_computed(home: Path) -> None:
    assert configuration(home).effective().command_limits() is None


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('memory = "12 parsecs"', "sandbox.limits.memory is '12 parsecs', expected bytes, a size"),
        ("processes = -1", "sandbox.limits.processes is -1, expected a whole number of at least 1"),
        ("nice = true", "`sandbox.limits.nice`: expected `int | str | null`, got `bool`"),
    ],
)
def test_bad_value_is_named_with_its_key_and_what_was_expected(
    home: Path, line: str, fault: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        configuration(home, f"[sandbox.limits]\n{line}\n").effective()

    assert fault in str(raised.value)
    assert raised.value.key == f"sandbox.limits.{line.split(maxsplit=1)[0]}"


def test_project_cannot_set_limits(home: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (project / ".codex").mkdir()
    (project / ".codex" / "config.toml").write_text('[sandbox.limits]\nprocesses = "none"\n')
    trust = f'[projects."{project}"]\ntrust_level = "trusted"\n'

    assert configuration(home, trust).effective(str(project)).command_limits() is None


def test_unknown_limit_is_reported(home: Path) -> None:
    effective = configuration(home, "[sandbox.limits]\nproceses = 100\n").effective()

    assert any("`sandbox.limits.proceses`" in each.summary for each in effective.warnings)
