"""`project/*` and the project of a thread: upstream's answers, unless a test says otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.threads import UNKNOWN_THREAD
from tests.server.organization.ground import Ground, ground
from treadle.protocol.base import JsonValue


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground(tmp_path) as found:
        yield found


async def create(place: Ground, name: str, **more: JsonValue) -> JsonValue:
    """Create a project."""
    params = {"name": name, "roots": [], "idempotencyKey": name, **more}
    return (await place.request("project/create", **params))["project"]


async def test_a_project_is_created_once_for_a_key(place: Ground) -> None:
    params = {"roots": [{"path": "/srv/../srv"}], "metadata": {"a": "b"}, "idempotencyKey": "k"}
    first = await create(place, " P ", **params)
    changed = (await place.client.until("project/changed"))[-1]["params"]
    again = await create(place, "Q", **params)

    assert (first["name"], first["roots"], first["metadata"]) == (
        "P",
        [{"path": "/srv"}],
        {"a": "b"},
    )
    assert (first["position"], first["recencyAt"]) == (0, None)
    assert changed == {"projectId": first["id"], "changeType": "created"}
    assert again == first


async def test_projects_are_listed_by_position_and_by_recency(place: Ground) -> None:
    first, second = await create(place, "P"), await create(place, "Q")
    await place.request("thread/metadata/update", threadId=place.threads[0], projectId=second["id"])

    async def listed(**params: JsonValue) -> list[str]:
        answer = await place.request("project/list", **params)
        return [each["name"] for each in answer["data"]]

    assert await listed() == ["P", "Q"]
    assert await listed(sortKey="recencyAt") == ["Q", "P"]
    assert await listed(sortKey="position", sortDirection="desc") == ["Q", "P"]
    await place.request("project/move", projectId=second["id"], beforeProjectId=first["id"])
    assert await listed() == ["Q", "P"]
    page = await place.request("project/list", limit=1)
    assert await listed(cursor=page["nextCursor"]) == ["P"]


async def test_a_project_is_changed_and_deleted(place: Ground) -> None:
    project = await create(place, "P", metadata={"a": "b"})
    id_ = project["id"]
    renamed = await place.request("project/update", projectId=id_, name="Q", metadata={"c": "d"})
    moved = await place.request("project/update", projectId=id_, roots=[{"path": "/var"}])
    read = await place.request("project/read", projectId=id_)
    await place.request("project/delete", projectId=id_)

    assert (renamed["project"]["name"], renamed["project"]["metadata"]) == ("Q", {"c": "d"})
    assert moved["project"]["roots"] == [{"path": "/var"}]
    assert read == moved
    assert (await place.request("project/list"))["data"] == []


async def test_threads_belong_to_a_project(place: Ground) -> None:
    project = (await create(place, "P"))["id"]
    thread_id = place.threads[0]
    updated = await place.request("thread/metadata/update", threadId=thread_id, projectId=project)
    published = (await place.client.until("thread/project/updated"))[-1]["params"]

    assert updated["thread"]["projectId"] == project
    assert published == {"threadId": thread_id, "projectId": project}
    assert await place.listed(projectId=project) == [0]
    assert await place.listed(projectId=None) == [2, 1]
    recency = (await place.request("project/read", projectId=project))["project"]["recencyAt"]
    assert recency == updated["thread"]["recencyAt"]
    await place.request("thread/metadata/update", threadId=thread_id, projectId="")
    assert await place.listed(projectId=project) == []


async def test_new_threads_and_forks_begin_in_a_project(place: Ground) -> None:
    project = (await create(place, "P"))["id"]
    started = await place.request("thread/start", projectId=project)
    announced = (await place.client.until("thread/started"))[-1]["params"]["thread"]
    await place.request("thread/metadata/update", threadId=place.threads[0], projectId=project)
    forked = await place.request("thread/fork", threadId=place.threads[0])
    await place.restart()
    read = await place.request("thread/read", threadId=started["thread"]["id"])

    found = [started["thread"], announced, forked["thread"], read["thread"]]
    assert [each["projectId"] for each in found] == [project] * 4


async def test_an_import_adds_threads_or_creates_nothing(place: Ground) -> None:
    params = {"name": "I", "roots": [], "idempotencyKey": "i"}
    refused = await place.refused(
        "project/import", **params, threads=[place.threads[0], UNKNOWN_THREAD]
    )
    assert f"thread not found: {UNKNOWN_THREAD}" in refused[1]
    assert (await place.request("project/list"))["data"] == []

    imported = await place.request("project/import", **params, threads=place.threads[:2])
    assert await place.listed(projectId=imported["project"]["id"]) == [1, 0]


async def test_a_deleted_project_leaves_its_threads(place: Ground) -> None:
    project = (await create(place, "P"))["id"]
    await place.request("thread/metadata/update", threadId=place.threads[0], projectId=project)
    await place.request("project/delete", projectId=project)

    assert await place.listed(projectId=None) == [2, 1, 0]


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("project/create", {"name": " "}, "project name must not be empty"),
        ("project/create", {"idempotencyKey": ""}, "idempotencyKey must not be empty"),
        ("project/create", {"roots": [{"path": "a"}]}, "roots[0].path must be an absolute path"),
        (
            "project/create",
            {"roots": [{"path": "/srv"}, {"path": "/srv/../srv"}]},
            "duplicate project root: /srv",
        ),
        ("project/create", {"metadata": {"a": "x" * 65_536}}, "more than 65536 bytes"),
        ("project/read", {"projectId": "x"}, "project not found: x"),
        ("project/update", {"projectId": "x", "name": "A"}, "project not found: x"),
        ("project/move", {"projectId": "x"}, "project not found: x"),
        ("project/delete", {"projectId": "x"}, "project not found: x"),
        ("project/list", {"sortDirection": "desc"}, "sortDirection requires sortKey"),
        ("thread/start", {"projectId": "x"}, "project not found: x"),
        ("thread/start", {"projectId": "x", "ephemeral": True}, "ephemeral thread"),
    ],
)
async def test_a_wrong_request_is_refused_and_changes_nothing(
    place: Ground, method: str, params: JsonValue, message: str
) -> None:
    full = {"name": "P", "roots": [], "idempotencyKey": "k"}
    given = {**full, **params} if method == "project/create" else params
    _, said = await place.refused(method, **given)

    assert message in said
    assert (await place.request("project/list"))["data"] == []
    assert await place.listed() == [2, 1, 0]


async def test_all_projects_fit_into_one_message(
    place: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client lists them, so one client could make the list unreadable for all."""
    monkeypatch.setattr("treadle.store.organization.projects.MAX_TOTAL", 5_000)
    first = await create(place, "P", metadata={"a": "b" * 3_000})
    large = {"name": "Q", "roots": [], "idempotencyKey": "Q", "metadata": {"a": "ä" * 1_500}}
    refused = [
        await place.client.refusal("project/create", large),
        await place.client.refusal(
            "project/update", {"projectId": first["id"], "metadata": {"a": "b" * 6_000}}
        ),
    ]
    await place.request("project/update", projectId=first["id"], metadata={"a": "c"})
    await place.request("project/create", **large)
    listed = (await place.request("project/list"))["data"]

    assert [each.data["path"] for each in refused] == ["metadata"] * 2
    assert [each["name"] for each in listed] == ["P", "Q"]
