"""Writes to the user's configuration: the answers, and the content of the file."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import tomllib
from pathlib import Path

import pytest

from tests.harness.mcp import PLAIN, settled
from tests.harness.peer import Peer
from tests.harness.processes import TREADLE
from tests.harness.threads import spawned, staged
from tests.server.serving import (
    client_of,
    configuration,
    notifications,
    refusal,
    result,
    running,
    serving,
)
from treadle.config.edit import user_file
from treadle.protocol.base import JsonValue
from treadle.support.files import folder_lock

TEXT = '# mine\nmodel = "a" # good\n\n[tui]\ntheme = "x"\n'
CONFLICT = "Configuration was modified since last read. Fetch latest version and retry."


def edit(key_path: str, value: JsonValue, strategy: str = "replace") -> dict[str, JsonValue]:
    return {"keyPath": key_path, "value": value, "mergeStrategy": strategy}


async def user_version(peer: Peer) -> JsonValue:
    answer = await result(peer, "config/read", {"includeLayers": True})
    return next(each["version"] for each in answer["layers"] if each["name"]["type"] == "user")


async def write(peer: Peer, key_path: str, value: JsonValue, **params: JsonValue) -> JsonValue:
    return await result(peer, "config/value/write", {**edit(key_path, value), **params})


def text_of(home: Path) -> str:
    return (home / "config.toml").read_text("utf-8")


def refused(code: str, message: str, path: str | None) -> JsonValue:
    data = {"kind": code, "config_write_error_code": code, "path": path}
    return {"code": -32600, "message": message, "data": data}


class TestOneValue:
    async def test_it_is_written_and_in_force_at_once(self, home: Path) -> None:
        async with serving(configuration(home, TEXT)) as peer:
            answer = await write(peer, "model", "b")
            read = await result(peer, "config/read", {})
            version = await user_version(peer)

        assert answer == {
            "status": "ok",
            "version": version,
            "filePath": str(home / "config.toml"),
            "overriddenMetadata": None,
        }
        assert read["config"]["model"] == "b"
        assert text_of(home) == TEXT.replace('"a"', '"b"')

    async def test_the_same_number_as_another_type_is_a_change(self, home: Path) -> None:
        async with serving(configuration(home, "odd = 1\n")) as peer:
            await write(peer, "odd", True)

        assert text_of(home) == "odd = true\n"

    async def test_an_unchanged_value_leaves_the_file_unchanged(self, home: Path) -> None:
        async with serving(configuration(home, 'model="a"')) as peer:
            before = (home / "config.toml").stat()
            await write(peer, "model", "a")
            await write(peer, "nope", None)

        after = (home / "config.toml").stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    async def test_a_version_is_accepted_once(self, home: Path) -> None:
        async with serving(configuration(home, TEXT)) as peer:
            version = await user_version(peer)
            written = await write(peer, "model", "b", expectedVersion=version)
            params = {**edit("model", "c"), "expectedVersion": version}
            error = await refusal(peer, "config/value/write", params)
            await write(peer, "model", "d", expectedVersion=written["version"])

        assert error == refused("configVersionConflict", CONFLICT, None)
        assert text_of(home) == TEXT.replace('"a"', '"d"')

    async def test_a_missing_file_has_a_version_too(self, home: Path) -> None:
        settings = configuration(home)
        (home / "config.toml").unlink()
        async with serving(settings) as peer:
            await write(peer, "model", "b", expectedVersion=await user_version(peer))

        assert text_of(home) == 'model = "b"\n'

    @pytest.mark.parametrize("name", ["other.toml", "/etc/codex/config.toml", "", "a\0b"])
    async def test_other_files_are_not_written(self, home: Path, name: str) -> None:
        async with serving(configuration(home, TEXT)) as peer:
            params = {**edit("model", "b"), "filePath": name}
            error = await refusal(peer, "config/value/write", params)

        message = "Only writes to the user config are allowed"
        assert error == refused("configLayerReadonly", message, "filePath")
        assert text_of(home) == TEXT

    async def test_the_file_may_be_named_by_another_path(self, home: Path) -> None:
        (home / "link.toml").symlink_to("config.toml")
        async with serving(configuration(home, TEXT)) as peer:
            paths = [f"{home}/./config.toml", f"{home}/link.toml"]
            answers = [await write(peer, "model", "b", filePath=path) for path in paths]

        assert [answer["filePath"] for answer in answers] == [
            f"{home}/config.toml",
            f"{home}/link.toml",
        ]
        assert (home / "link.toml").is_symlink()


class TestBadWrites:
    @pytest.mark.parametrize(
        ("key_path", "value", "path", "reason"),
        [
            ("approval_policy", "bogus", "approval_policy", "unknown variant `bogus`"),
            ("model", 3, "model", "`str"),
            ('projects."/a".trust_level', "so", "projects./a.trust_level", "`trusted`"),
            ("sandbox_workspace_write.network_access", "x", None, "`bool`"),
            ("mcp_servers.one", {"x": 1}, "mcp_servers.one", "invalid transport"),
            ("model_providers.p", {"name": 3}, "model_providers", "name"),
            ("profile", "nope", "profile", "not found"),
        ],
    )
    async def test_an_invalid_value_is_refused_by_its_name(
        self, home: Path, key_path: str, value: JsonValue, path: str | None, reason: str
    ) -> None:
        async with serving(configuration(home, TEXT)) as peer:
            error = await refusal(peer, "config/value/write", edit(key_path, value))

        assert error == refused("configValidationError", error["message"], path or key_path)
        assert error["message"].startswith("Invalid configuration: ")
        assert reason in error["message"]
        assert text_of(home) == TEXT

    @pytest.mark.parametrize(
        ("key_path", "value", "path", "message"),
        [
            ("", 1, "keyPath", "keyPath must not be empty"),
            ("model.x", 1, "model.x", "cannot set value on non-table parent"),
            ("a", [2**63], "a", "invalid value: the integer does not fit 64 bits"),
        ],
    )
    async def test_an_impossible_edit_is_refused(
        self, home: Path, key_path: str, value: JsonValue, path: str, message: str
    ) -> None:
        async with serving(configuration(home, TEXT)) as peer:
            error = await refusal(peer, "config/value/write", edit(key_path, value))

        assert error == refused("configValidationError", message, path)
        assert text_of(home) == TEXT

    async def test_a_key_that_the_next_read_would_refuse_is_not_written(self, home: Path) -> None:
        """Ours: 40 levels were written, and no thread could start until the file was repaired."""
        deep: JsonValue = 1
        for _ in range(20):
            deep = {"a": deep}
        path = ".".join("a" * 20)
        async with serving(configuration(home, TEXT)) as peer:
            errors = [
                await refusal(peer, "config/value/write", edit(key_path, value))
                for key_path, value in ((f"{path}.{path}", 1), (path, deep), (path, [deep]))
            ]
            await result(peer, "config/read", {})

        message = f"{home / 'config.toml'} could not be read: a key has 39 parts: expected at most"
        assert [error["message"] for error in errors] == [f"{message} 32"] * 3
        assert text_of(home) == TEXT

    async def test_a_feature_that_a_requirement_sets_cannot_be_changed(self, home: Path) -> None:
        settings = configuration(home, TEXT, requirements="[features]\napps = false\n")
        async with serving(settings) as peer:
            error = await refusal(peer, "config/value/write", edit("features.apps", True))
            await write(peer, "features.apps", False)

        message = "Invalid configuration: `features.apps` must stay off on this machine"
        assert error == refused("configValidationError", message, "features.apps")

    async def test_a_file_that_is_not_toml_is_not_changed(self, home: Path) -> None:
        broken = f"{TEXT}\n["
        async with serving(configuration(home, broken)) as peer:
            await notifications(peer, 1)
            error = await refusal(peer, "config/value/write", edit("model", "b"))

        assert error["code"] == -32603
        assert error["message"].startswith(
            f"failed to load configuration: {home / 'config.toml'}: "
        )
        assert text_of(home) == broken

    async def test_a_bad_value_in_the_file_can_be_corrected(self, home: Path) -> None:
        async with serving(configuration(home, 'approval_policy = "zz"\n')) as peer:
            await notifications(peer, 1)
            error = await refusal(peer, "config/value/write", edit("model", "b"))
            await write(peer, "approval_policy", "never")

        assert error["data"]["path"] == "approval_policy"
        assert text_of(home) == 'approval_policy = "never"\n'


class TestOverridden:
    async def test_an_override_by_the_command_line_is_reported(self, home: Path) -> None:
        async with serving(configuration(home, TEXT, "model=f")) as peer:
            answer = await write(peer, "model", "b")
            same = await write(peer, "model", "f")
            other = await write(peer, "tui.theme", "y")
            layers = (await result(peer, "config/read", {"includeLayers": True}))["layers"]

        assert answer == {
            "status": "okOverridden",
            "version": answer["version"],
            "filePath": str(home / "config.toml"),
            "overriddenMetadata": {
                "message": "Overridden by session flags",
                "overridingLayer": {
                    "name": {"type": "sessionFlags"},
                    "version": layers[0]["version"],
                },
                "effectiveValue": "f",
            },
        }
        assert [each["status"] for each in (same, other)] == ["ok", "ok"]

    async def test_an_override_of_a_part_of_a_table_is_reported(self, home: Path) -> None:
        async with serving(configuration(home, TEXT, "tui.theme=z")) as peer:
            params = edit("tui", {"theme": "q", "x": 1}, "upsert")
            answer = await result(peer, "config/value/write", params)
            gone = await write(peer, "tui", None)

        values = [each["overriddenMetadata"]["effectiveValue"] for each in (answer, gone)]
        assert values == [{"theme": "z", "x": 1}, {"theme": "z"}]

    async def test_a_profile_overrides_the_rest_of_the_file(self, home: Path) -> None:
        text = 'profile = "fast"\n[profiles.fast]\nmodel = "quick"\n'
        async with serving(configuration(home, text)) as peer:
            answer = await write(peer, "model", "b")

        assert answer["overriddenMetadata"]["message"] == (
            f"Overridden by profile fast ({home / 'config.toml'})"
        )


class TestSeveralValues:
    async def test_all_are_written(self, home: Path) -> None:
        edits = [edit("model", "b"), edit("tui", {"x": 1}, "upsert"), edit("tui.theme", None)]
        async with serving(configuration(home, TEXT)) as peer:
            await result(peer, "config/batchWrite", {"edits": edits})

        assert text_of(home) == '# mine\nmodel = "b" # good\n\n[tui]\nx = 1\n'

    async def test_or_none_are_written(self, home: Path) -> None:
        edits = [edit("model", "b"), edit("approval_policy", "bogus")]
        async with serving(configuration(home, TEXT)) as peer:
            error = await refusal(peer, "config/batchWrite", {"edits": edits})

        assert error["data"]["path"] == "approval_policy"
        assert text_of(home) == TEXT

    async def test_an_empty_batch_is_accepted(self, home: Path) -> None:
        async with serving(configuration(home, TEXT)) as peer:
            answer = await result(peer, "config/batchWrite", {"edits": []})

        assert (answer["status"], text_of(home)) == ("ok", TEXT)

    @pytest.mark.parametrize("is_asked", [True, False])
    async def test_loaded_threads_are_updated_on_request(self, home: Path, is_asked: bool) -> None:
        """Ours: the model follows too; upstream's threads only update their MCP servers."""
        server = {"command": sys.executable, "args": PLAIN}
        edits = [edit("mcp_servers.mini", server), edit("model", "other")]
        async with staged(home) as stage:
            client = await stage.client()
            thread_id = await client.start()
            params = {"edits": edits, "reloadUserConfig": is_asked}
            await client.request("config/batchWrite", params)
            if is_asked:
                await settled(client, "mini")
            await client.run(thread_id)
            status = await client.request("mcpServerStatus/list", {"threadId": thread_id})

        assert [each["name"] for each in status["data"]] == (["mini"] if is_asked else [])
        model = "other" if is_asked else "mock-model"
        assert [request.body["model"] for request in stage.model.requests] == [model]


class TestTheFile:
    async def test_a_new_one_is_private_to_its_owner(self, home: Path) -> None:
        settings = configuration(home)
        (home / "config.toml").unlink()
        async with serving(settings) as peer:
            await write(peer, "model", "b")

        assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600
        assert os.listdir(home) == ["config.toml"]  # noqa: PTH208 - nothing else is left behind

    async def test_an_existing_one_keeps_its_mode(self, home: Path) -> None:
        settings = configuration(home, TEXT)
        (home / "config.toml").chmod(0o640)
        async with serving(settings) as peer:
            await write(peer, "model", "b")

        assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o640

    @pytest.mark.parametrize("is_there", [True, False])
    async def test_a_link_is_followed(self, home: Path, tmp_path: Path, is_there: bool) -> None:
        real = tmp_path / "dotfiles" / "codex.toml"
        settings = configuration(home)
        (home / "config.toml").unlink()
        (home / "config.toml").symlink_to(real)
        if is_there:
            real.parent.mkdir()
            real.write_text(TEXT, "utf-8")
        async with serving(settings) as peer:
            await write(peer, "model", "b")

        assert (home / "config.toml").is_symlink()
        assert tomllib.loads(real.read_text("utf-8"))["model"] == "b"

    async def test_concurrent_clients_lose_nothing(self, home: Path) -> None:
        names = [f"k{number}" for number in range(20)]
        async with running(configuration(home, TEXT)) as server, asyncio.TaskGroup() as tasks:

            async def one(name: str) -> None:
                async with client_of(server) as peer:
                    await write(peer, f"desktop.{name}", name)

            for name in names:
                tasks.create_task(one(name))

        assert tomllib.loads(text_of(home))["desktop"] == {name: name for name in names}

    async def test_concurrent_servers_lose_nothing(self, home: Path) -> None:
        (home / "config.toml").write_text(TEXT, "utf-8")

        async def one(server: int) -> None:
            async with spawned([TREADLE, "app-server"], home) as client:
                for number in range(15):
                    await client.request(
                        "config/value/write", edit(f"desktop.k{server}-{number}", 1)
                    )

        async with asyncio.timeout(40), asyncio.TaskGroup() as tasks:
            for server in range(3):
                tasks.create_task(one(server))

        names = {f"k{server}-{number}" for server in range(3) for number in range(15)}
        assert tomllib.loads(text_of(home))["desktop"].keys() == names

    def test_a_change_by_a_program_without_the_lock_is_not_overwritten(self, home: Path) -> None:
        path = home / "config.toml"
        path.write_text("0", "utf-8")
        seen: list[bytes] = []

        def change(content: bytes) -> bytes:
            seen.append(content)
            if len(seen) == 1:
                path.write_text("1", "utf-8")  # as an editor does meanwhile
            return content + b"+"

        user_file.edit_file(path, change)

        assert (seen, path.read_text("utf-8")) == ([b"0", b"1"], "1+")

    def test_a_program_that_never_releases_the_lock_does_not_prevent_a_write(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import fcntl

        monkeypatch.setattr(folder_lock, "LOCK_SECONDS", 0.0)
        descriptor = os.open(home, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            user_file.edit_file(home / "config.toml", lambda _: b"x")
        finally:
            os.close(descriptor)

        assert (home / "config.toml").read_bytes() == b"x"


async def test_the_library_is_imported_with_the_first_write(home: Path) -> None:
    """Its import takes longer than most requests."""
    script = (
        "import sys, treadle.server.handlers.config_write;"
        "print('tomlkit' in sys.modules, file=sys.stdout)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()

    assert json.loads(out.decode().lower()) is False
