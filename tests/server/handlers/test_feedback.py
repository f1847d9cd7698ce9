"""`feedback/save` and `feedback/upload`: what a report contains, and where it goes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import stat
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.threads import Client
from tests.server.serving import configuration, refusal, result, serving
from treadle.protocol.base import JsonValue
from treadle.server.feedback import sending

SECRET = "sk-do-not-show-1234567890"
CONFIG = f"""
notify = ["curl", "-H", "Authorization: Bearer {SECRET}"]

[model_providers.mine]
name = "mine"
base_url = "https://user:{SECRET}@example.test/v1?api-version={SECRET}"
experimental_bearer_token = "{SECRET}"
env_key = "MY_KEY"
http_headers = {{ "X-Team" = "{SECRET}" }}

[mcp_servers.tools]
command = "tools"
args = ["--key", "{SECRET}"]
env = {{ PLAIN = "{SECRET}" }}

[[hooks.Stop]]
hooks = [{{ type = "command", command = "KEY={SECRET} curl example.test" }}]
"""


def parts(archive: bytes | Path) -> dict[str, bytes]:
    """Return the entries of a report."""
    with zipfile.ZipFile(io.BytesIO(archive) if isinstance(archive, bytes) else archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@asynccontextmanager
async def endpoint(answer: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run an HTTP server that gives one answer, and yield its URL and the bodies it received."""
    bodies: list[bytes] = []
    open_connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        ]
        bodies.append(await reader.readexactly(length))
        writer.write(answer)
        open_connections.append(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/reports", bodies
    finally:
        for each in open_connections:
            each.close()
        server.close()


# -- save


async def test_a_saved_report_has_what_the_user_wrote_and_nothing_else(tmp_path: Path) -> None:
    """Upstream: without logs, a report has no attachments; only its owner can read it."""
    path = tmp_path / "report.zip"
    params = {"classification": "bug", "savePath": str(path), "reason": "slow", "tags": {"a": "b"}}
    async with serving(configuration(tmp_path / "home")) as peer:
        answer = await result(peer, "feedback/save", params)

    found = parts(path)
    report = json.loads(found["report.json"])
    assert found.keys() == {"report.json", "manifest.json"}
    assert json.loads(found["manifest.json"]) == []
    assert answer["savedPath"] == str(path)
    assert answer["threadId"].startswith("no-active-thread-")
    assert report["reason"] == "slow"
    assert report["tags"]["a"] == "b"
    assert report["tags"]["classification"] == "bug"
    assert report["tags"]["thread_id"] == answer["threadId"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_logs_bring_the_thread_and_the_configuration_without_secrets(tmp_path: Path) -> None:
    path, extra = tmp_path / "report.zip", tmp_path / "mine.log"
    extra.write_text("my own log")
    async with serving(configuration(tmp_path / "home", CONFIG)) as peer:
        client = Client(peer)
        started = await client.request("thread/start", {"cwd": str(tmp_path)})
        thread = started["thread"]
        params = {
            "classification": "bug",
            "savePath": str(path),
            "includeLogs": True,
            "threadId": thread["id"],
            "extraLogFiles": [str(extra)],
        }
        answer = await client.request("feedback/save", params)

    found = parts(path)
    manifest = json.loads(found["manifest.json"])
    rollout = Path(thread["path"])
    stored = await asyncio.to_thread(rollout.read_bytes)
    assert answer["threadId"] == thread["id"]
    assert [each["filename"] for each in manifest] == [
        "treadle.log",
        "config.json",
        rollout.name,
        "mine.log",
    ]
    assert found[manifest[2]["entry"]] == stored
    assert found[manifest[3]["entry"]] == b"my own log"
    shown = json.loads(found[manifest[1]["entry"]])
    assert shown["model_providers"]["mine"]["env_key"] == "MY_KEY"
    assert shown["model_providers"]["mine"]["base_url"] == "https://example.test/v1"
    assert shown["notify"] == ["curl", "[redacted]", "[redacted]"]
    assert shown["mcp_servers"]["tools"]["command"] == "tools"
    assert not [name for name, content in found.items() if SECRET.encode() in content]


async def test_a_report_replaces_no_file(tmp_path: Path) -> None:
    path = tmp_path / "report.zip"
    path.write_text("mine")
    async with serving(configuration(tmp_path / "home")) as peer:
        error = await refusal(
            peer, "feedback/save", {"classification": "bug", "savePath": str(path)}
        )

    assert error["message"] == "failed to save feedback: feedback save path already exists"
    assert path.read_text() == "mine"


@pytest.mark.parametrize("name", ["missing", "folder", "pipe"])
async def test_a_file_that_cannot_be_attached_leaves_no_report(tmp_path: Path, name: str) -> None:
    """A pipe has no end: opening it would wait for a writer."""
    folder = tmp_path / "reports"
    folder.mkdir()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    params = {
        "classification": "bug",
        "savePath": str(folder / "report.zip"),
        "extraLogFiles": [str(tmp_path / name)],
    }
    async with serving(configuration(tmp_path / "home")) as peer:
        error = await refusal(peer, "feedback/save", params)

    assert str(tmp_path / name) in error["message"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"savePath": "relative.zip"}, "savePath"),
        ({"savePath": "/nowhere/at/all/report.zip"}, "/nowhere"),
        ({"threadId": "x"}, "thread id"),
        ({"threadId": "01a1f57b-9639-7061-9642-304a3bfd41b0"}, "01a1f57b"),
        ({"extraLogFiles": ["relative.log"]}, "relative.log"),
        ({"extraLogFiles": ["/etc/hostname"] * 21}, "20 files"),
        ({"tags": {str(number): "" for number in range(65)}}, "64 tags"),
        ({"reason": "x" * 65_537}, "65536"),
        ({"classification": 1}, "classification"),
    ],
)
async def test_a_wrong_field_is_named(tmp_path: Path, params: JsonValue, field: str) -> None:
    path = tmp_path / "report.zip"
    given = {"classification": "bug", "savePath": str(path), **params}
    async with serving(configuration(tmp_path / "home")) as peer:
        error = await refusal(peer, "feedback/save", given)

    assert field in error["message"]
    assert not path.exists()


# -- upload


async def test_an_upload_without_an_endpoint_stays_on_this_machine(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with serving(configuration(home)) as peer:
        answer = await result(peer, "feedback/upload", {"classification": "good_result"})

    (path,) = (home / "feedback").iterdir()
    assert json.loads(parts(path)["report.json"])["tags"]["thread_id"] == answer["threadId"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_an_upload_sends_the_report_to_the_endpoint(tmp_path: Path) -> None:
    home = tmp_path / "home"
    accepted = b"HTTP/1.1 204 No Content\r\n\r\n"
    async with endpoint(accepted) as (url, bodies):
        settings = configuration(home, f'[feedback]\nendpoint = "{url}"\n')
        async with serving(settings) as peer:
            await result(peer, "feedback/upload", {"classification": "bug", "includeLogs": True})

    (path,) = (home / "feedback").iterdir()
    assert bodies == [path.read_bytes()]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "answered 500"),
        (b"HTTP/1.1 307 There\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "answered 307"),
        (b"garbage\r\n\r\n", "cannot be reached"),
        (b"", "did not answer"),
    ],
)
async def test_a_report_that_is_not_accepted_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, reason: str
) -> None:
    """The last endpoint never answers: its deadline is shortened here."""
    if not answer:
        monkeypatch.setattr(sending, "SECONDS", 0.5)
    home = tmp_path / "home"
    async with endpoint(answer) as (url, _):
        settings = configuration(home, f'[feedback]\nendpoint = "{url}"\n')
        async with serving(settings) as peer:
            error = await refusal(peer, "feedback/upload", {"classification": "bug"})

    (path,) = (home / "feedback").iterdir()
    assert reason in error["message"]
    assert str(path) in error["message"]


@pytest.mark.parametrize(
    ("config", "requirements"),
    [("[feedback]\nenabled = false\n", None), ("", "[feedback]\nenabled = false\n")],
)
async def test_uploads_can_be_disabled(
    tmp_path: Path, config: str, requirements: str | None
) -> None:
    """Upstream: by the user or the administrator; saving is still possible."""
    home, path = tmp_path / "home", tmp_path / "report.zip"
    settings = configuration(home, config, requirements=requirements)
    async with serving(settings) as peer:
        error = await refusal(peer, "feedback/upload", {"classification": "bug"})
        await result(peer, "feedback/save", {"classification": "bug", "savePath": str(path)})

    assert error["message"] == "sending feedback is disabled by configuration"
    assert not (home / "feedback").exists()
    assert path.exists()


async def test_arguments_of_commands_are_no_part_of_a_report(tmp_path: Path) -> None:
    """Keys are often among them, and nothing shows which they are."""
    words = f'["tool", "-H", "Authorization: {SECRET}"]'
    text = (
        f"notify = {words}\n"
        f'developer_instructions = "see https://user:{SECRET}@host/x?key={SECRET} first"\n'
        f'[mcp_servers.tools]\ncommand = "tools"\nargs = {words}\n'
    )
    path = tmp_path / "report.zip"
    params = {"classification": "bug", "includeLogs": True, "savePath": str(path)}
    async with serving(configuration(tmp_path / "home", text)) as peer:
        await result(peer, "feedback/save", params)

    (config,) = [text for name, text in parts(path).items() if name.endswith("config.json")]
    shown = json.loads(config)
    assert SECRET.encode() not in config
    assert shown["notify"] == ["tool", "[redacted]", "[redacted]"]
    assert shown["mcp_servers"]["tools"]["command"] == "tools"
    assert shown["developer_instructions"] == "see https://host/x first"
