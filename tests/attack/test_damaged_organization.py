"""Sections, projects and attachments: damage and broken disks cost no thread, and little of them.

Nothing else contains these facts, so a disk that fails for a moment must not make the server
start from nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from tests.harness.model_server import says
from tests.harness.threads import Client, Stage
from treadle.store.organization.database import OrganizationDatabase

PAGE = 4096


async def organized(stage: Stage, client: Client) -> str:
    """Start a thread, and put it into a section and a project, with an attachment."""
    stage.model.plays(says("hi"))
    thread_id = await client.start()
    await client.run(thread_id)
    section = await client.request("threadSection/create", {"name": "Work"})
    project = await client.request(
        "project/create",
        {"name": "Loom", "idempotencyKey": "loom", "roots": [{"path": "/loom"}]},
    )
    await client.request(
        "thread/section/move", {"threadId": thread_id, "sectionId": section["section"]["id"]}
    )
    await client.request(
        "thread/metadata/update", {"threadId": thread_id, "projectId": project["project"]["id"]}
    )
    await client.request(
        "thread/attachment/add",
        {"threadId": thread_id, "attachmentType": "pr", "identityKey": "1", "payload": {"n": 1}},
    )
    return thread_id


def statements(*texts: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            for text in texts:
                connection.execute(text)
            connection.commit()

    return damage


def page(number: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[number * PAGE : (number + 1) * PAGE] = b"\xa5" * PAGE
        path.write_bytes(content)

    return damage


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "newer version": statements("pragma user_version = 7"),
    "appearance": statements("update sections set appearance = '{'"),
    "roots": statements("update projects set roots = '[3'"),
    "lost table": statements("drop table section_members"),
    "page of a table": page(1),
    "header": page(0),
    "folder": folder,
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_database_of_sections_costs_no_thread(stage: Stage, name: str) -> None:
    """A user would otherwise lose the list of all threads with a page of one file."""
    client = await stage.client()
    thread_id = await organized(stage, client)
    DAMAGES[name](stage.home / "organization.sqlite")

    listed = await client.request("thread/list", {})
    await client.read(thread_id)
    await client.request("thread/resume", {"threadId": thread_id})
    fork = await client.request("thread/fork", {"threadId": thread_id})
    await client.request("thread/delete", {"threadId": fork["thread"]["id"]})
    stage.model.plays(says("again"))
    await client.run(thread_id)

    assert [thread["id"] for thread in listed["data"]] == [thread_id]


@pytest.mark.parametrize("name", ["appearance", "roots", "lost table", "page of a table"])
async def test_what_is_beside_the_damage_remains(stage: Stage, name: str) -> None:
    """The old file is kept, but users do not read it: its other rows continue."""
    client = await stage.client()
    thread_id = await organized(stage, client)
    DAMAGES[name](stage.home / "organization.sqlite")

    added = await client.request("threadSection/create", {"name": "New"})
    projects = (await client.request("project/list", {}))["data"]
    attached = await client.request("thread/attachment/list", {"threadId": thread_id})
    sections = (await client.request("threadSection/list", {}))["data"]

    assert [project["name"] for project in projects] == ["Loom"]
    assert [each["identityKey"] for each in attached["data"]] == ["1"]
    assert added["section"] in sections


class _Broken:
    """Connections whose every statement fails like a disk that cannot be read."""

    def __init__(self, code: int) -> None:
        self._code = code

    def execute(self, *_: object) -> NoReturn:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = self._code
        raise error

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (sqlite3.SQLITE_IOERR_READ, "EIO"),
        (sqlite3.SQLITE_FULL, "ENOSPC"),
        (sqlite3.SQLITE_CANTOPEN, "EACCES"),
        (sqlite3.SQLITE_BUSY, "EBUSY"),
    ],
)
async def test_a_disk_that_fails_for_a_moment_loses_no_section(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, code: int, name: str
) -> None:
    """An error of the disk says nothing about the content: it is reported, and nothing replaced."""
    client = await stage.client()
    thread_id = await organized(stage, client)

    with monkeypatch.context() as patch:
        patch.setattr(OrganizationDatabase, "_connect", lambda _self: _Broken(code))
        refused = await client.refusal("threadSection/create", {"name": "New"})
        listed = await client.request("thread/list", {})
    sections = (await client.request("threadSection/list", {}))["data"]

    assert refused.kind == "io"
    assert refused.data["errno"] == name
    assert [thread["id"] for thread in listed["data"]] == [thread_id]
    assert [section["name"] for section in sections] == ["Pinned", "Work"]
    assert not (stage.home / "organization.sqlite.damaged").exists()
