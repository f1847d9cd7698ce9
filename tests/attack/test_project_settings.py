"""The `config.toml` of a repository: limited before it is parsed, and parsed off the event loop.

An untrusted repository chooses its content, and a client only the folder. No test measures time.
"""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path

import pytest

from tests.harness.stalls import stalled
from tests.harness.threads import Stage
from tests.server.serving import configuration
from treadle.config import layer_files
from treadle.config.configuration import MAX_PROJECT_BYTES, MAX_PROJECT_FILE_BYTES, Configuration
from treadle.config.file import MAX_KEY_PARTS, ConfigError, read_toml
from treadle.protocol.base import JsonValue

KEY = ".".join(["a"] * (MAX_KEY_PARTS + 1))
QUOTED = " . ".join(["a", '"b \\" c"', "'d \"'"] * MAX_KEY_PARTS)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".codex").mkdir()
    return folder


def write(folder: Path, text: str) -> None:
    (folder / ".codex").mkdir(exist_ok=True)
    (folder / ".codex" / "config.toml").write_text(text, "utf-8")


def trusted(folder: Path) -> str:
    return f'[projects."{folder}"]\ntrust_level = "trusted"\n'


def trusting(home: Path, folder: Path) -> Configuration:
    return configuration(home, trusted(folder))


# -- limits


@pytest.mark.parametrize(
    "text",
    [
        f"{KEY} = 1",
        f"[{KEY}]",
        f"[[{KEY}]]",
        f"{QUOTED} = 1",
        f"x = {{{KEY} = 1}}",
        f'x = "\\"" # "\n{KEY} = 1',
        f'x = {{a = """z"""", {KEY} = 1}} # "',
        f'x = {{a = """\n\\""""", {KEY} = 1}} # "',
        f"x = {{a = '''z''''', {KEY} = 1}} # '",
        f"x = {{a = 'z\\', {KEY} = 1}} # '",
    ],
)
def test_long_keys_are_refused_before_they_are_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A key with 20,000 parts, 40 KB, once took 5 s of the event loop."""
    monkeypatch.delattr(tomllib, "loads")
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"parts: expected at most {MAX_KEY_PARTS}"):
        read_toml(file)


@pytest.mark.parametrize(
    "text",
    [
        f"x = '{KEY}'",
        f'x = "\\"{KEY}" # it\'s',
        f'x = """\n{KEY}\n\\"""{KEY}""""',
        f"x = '''\n{KEY}'''",
        f"# {KEY}\nx = 1",
        f"x = [{', '.join(['1.5'] * 100)}]",
        f"{'.'.join(['a'] * MAX_KEY_PARTS)} = '{KEY}'",
    ],
)
def test_dots_in_values_and_comments_are_not_limited(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    assert read_toml(file) == tomllib.loads(text)


@pytest.mark.parametrize("text", [f"x = {'[' * 5000}", f"x = {'9' * 5000}"])
def test_values_that_the_parser_cannot_take_are_errors_of_the_file(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="failed to load"):
        read_toml(file)


def test_the_files_of_a_project_have_a_limited_size(home: Path, project: Path) -> None:
    write(project, "#" * (MAX_PROJECT_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match=f"larger than {MAX_PROJECT_FILE_BYTES} bytes"):
        trusting(home, project).effective(str(project))


def test_the_files_of_nested_folders_have_a_limited_size_in_total(
    home: Path, project: Path
) -> None:
    folder = project
    for _ in range(MAX_PROJECT_BYTES // MAX_PROJECT_FILE_BYTES):
        write(folder, "#" * MAX_PROJECT_FILE_BYTES)
        folder /= "inner"
        folder.mkdir()
    found = trusting(home, project)
    found.effective(str(folder))
    write(folder, "#")
    with pytest.raises(ConfigError, match=f"at most {MAX_PROJECT_BYTES} bytes"):
        found.effective(str(folder))


# -- what is parsed, and how often


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Record the files that are parsed."""
    files: list[Path] = []

    def recorded(path: Path, *args: int) -> dict[str, JsonValue]:
        files.append(path)
        return read_toml(path, *args)

    monkeypatch.setattr(layer_files, "read_toml", recorded)
    return files


def test_settings_that_are_ignored_are_parsed_only_to_show_them(
    home: Path, project: Path, parsed: list[Path]
) -> None:
    write(project, 'model = "project"')
    found = configuration(home)
    assert found.effective(str(project)).layers[-1].table == {}
    assert parsed == [home / "config.toml"]
    shown = found.effective(str(project), shows_ignored=True).layers[-1]
    assert (shown.table, shown.disabled_reason is None) == ({"model": "project"}, False)


def test_a_file_that_is_not_toml_is_parsed_once(
    home: Path, project: Path, parsed: list[Path]
) -> None:
    found = trusting(home, project)
    write(project, "model = [")
    for _ in range(3):
        with pytest.raises(ConfigError, match="failed to load"):
            found.effective(str(project))
    assert parsed.count(project / ".codex" / "config.toml") == 1
    write(project, 'model = "project"')
    assert found.effective(str(project)).model == "project"


# -- off the event loop


@pytest.mark.parametrize(
    "method", ["thread/start", "config/read", "permissionProfile/list", "command/exec"]
)
async def test_other_clients_are_served_while_settings_of_a_project_are_parsed(
    stage: Stage, project: Path, method: str
) -> None:
    """Ten nested files of 900 KB once took 8 s of the event loop."""
    stage.configure(trusted(project))
    client, other = await stage.client(), await stage.client()
    await client.start(cwd=str(stage.workspace))
    write(project, 'developer_instructions = "mine"')
    params: dict[str, JsonValue] = {"cwd": str(project)}
    if method == "command/exec":
        params |= {"command": ["true"], "sandboxPolicy": {"type": "dangerFullAccess"}}
    async with asyncio.TaskGroup() as tasks:
        with stalled(layer_files, "read_toml") as stall:
            request = tasks.create_task(client.request(method, params))
            await stall.reached()
            await other.start(cwd=str(stage.workspace))
            assert not request.done()
            stall.release()
            await request
