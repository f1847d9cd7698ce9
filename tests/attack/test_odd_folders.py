"""Excessive folders are refused before work begins, and the others delay no client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.harness.model_server import says
from tests.harness.stalls import stalled
from tests.harness.threads import EPILOGUE, Refused, Stage, outline
from treadle.config.configuration import Configuration
from treadle.config.project import Project
from treadle.config.settings import ConfigValues
from treadle.protocol.base import JsonValue
from treadle.server.folder_limits import MAX_COMPONENTS, MAX_FOLDERS, MAX_PATH_BYTES
from treadle.server.sources.skills import ConfiguredSkills

DEEP = "/" + "x/" * (MAX_COMPONENTS + 1)
LONG = "/" + "x" * MAX_PATH_BYTES
LISTS = ["skills/list", "hooks/list"]
TOO_DEEP = f"must have at most {MAX_COMPONENTS} components, not {MAX_COMPONENTS + 1}"
TOO_LONG = f"must have at most {MAX_PATH_BYTES} bytes, not {MAX_PATH_BYTES + 1}"


async def refusal(stage: Stage, method: str, params: JsonValue) -> str:
    client = await stage.client()
    with pytest.raises(Refused) as refused:
        await client.request(method, params)
    return str(refused.value)


@pytest.mark.parametrize(("folder", "reason"), [(DEEP, TOO_DEEP), (LONG, TOO_LONG)])
@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("config/read", {}),
        ("permissionProfile/list", {}),
        ("thread/start", {}),
        ("command/exec", {"command": ["true"]}),
    ],
)
async def test_an_excessive_folder_is_refused(
    stage: Stage, method: str, more: JsonValue, folder: str, reason: str
) -> None:
    assert f"cwd {reason}" in await refusal(stage, method, {"cwd": folder, **more})


@pytest.mark.parametrize("method", ["turn/start", "thread/settings/update", "thread/fork"])
async def test_a_thread_does_not_move_to_such_a_folder(stage: Stage, method: str) -> None:
    client = await stage.client()
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(says("first"))
    await client.run(thread_id)
    more: JsonValue = {"input": []} if method == "turn/start" else {}
    with pytest.raises(Refused) as refused:
        await client.request(method, {"threadId": thread_id, "cwd": DEEP, **more})
    assert f"cwd {TOO_DEEP}" in str(refused.value)

    stage.model.plays(says("still here"))
    assert outline(await client.run(thread_id))[-2:] == EPILOGUE


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize(("folder", "reason"), [(DEEP, TOO_DEEP), (LONG, TOO_LONG)])
async def test_each_folder_of_a_list_is_checked(
    stage: Stage, method: str, folder: str, reason: str
) -> None:
    assert f"cwds[1] {reason}" in await refusal(stage, method, {"cwds": ["/", folder]})


@pytest.mark.parametrize("method", LISTS)
async def test_the_number_of_folders_has_a_limit(stage: Stage, method: str) -> None:
    folders = [f"/nowhere/{number}" for number in range(MAX_FOLDERS + 1)]
    reason = f"cwds must have at most {MAX_FOLDERS} entries, not {MAX_FOLDERS + 1}"
    assert reason in await refusal(stage, method, {"cwds": folders})

    client = await stage.client()
    answer = await client.request(method, {"cwds": folders[1:]})
    assert [entry["cwd"] for entry in answer["data"]] == folders[1:]


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ([{"cwd": DEEP, "extraUserRoots": []}], "perCwdExtraUserRoots[0]"),
        ([{"cwd": "/", "extraUserRoots": [DEEP]}], "perCwdExtraUserRoots[0].extraUserRoots[0]"),
    ],
)
async def test_extra_roots_are_checked(stage: Stage, entries: JsonValue, field: str) -> None:
    params = {"cwds": ["/"], "perCwdExtraUserRoots": entries}
    assert f"{field} {TOO_DEEP}" in await refusal(stage, "skills/list", params)


async def test_roots_for_all_folders_are_checked(stage: Stage) -> None:
    params: JsonValue = {"extraRoots": ["/x", DEEP]}
    assert f"extraRoots[1] {TOO_DEEP}" in await refusal(stage, "skills/extraRoots/set", params)


async def test_the_deepest_supported_folder_is_accepted(stage: Stage) -> None:
    client = await stage.client()
    folder = "/" + "/".join(["x"] * MAX_COMPONENTS)
    for method in LISTS:
        answer = await client.request(method, {"cwds": [folder]})
        assert answer["data"][0]["cwd"] == folder
    await client.request("config/read", {"cwd": folder})


@pytest.mark.parametrize(
    ("method", "step"),
    [("hooks/list", (Configuration, "effective")), ("skills/list", (ConfiguredSkills, "roots"))],
)
async def test_other_clients_are_served_while_folders_are_scanned(
    stage: Stage, method: str, step: tuple[type, str]
) -> None:
    client, other = await stage.client(), await stage.client()
    with stalled(*step) as stall:
        async with asyncio.TaskGroup() as group:
            listing = group.create_task(client.request(method, {"cwds": [str(stage.workspace)]}))
            await stall.reached()
            await other.request("thread/loaded/list", {})
            stall.release()
        answer = listing.result()
    assert [entry["cwd"] for entry in answer["data"]] == [str(stage.workspace)]


def test_a_project_has_the_folders_from_its_root_down(tmp_path: Path) -> None:
    (tmp_path / "marked").mkdir()
    (tmp_path / "marked" / "root").touch()
    cwd = tmp_path / "marked" / "a" / "b"
    project = Project(cwd, ConfigValues(project_root_markers=["root"]))
    assert project.folders() == [tmp_path / "marked", tmp_path / "marked" / "a", cwd]
    for markers in (["none"], ["\0", "a" * 5000]):
        assert Project(cwd, ConfigValues(project_root_markers=markers)).folders() == [cwd]
