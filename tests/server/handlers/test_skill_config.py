"""Turning skills on and off permanently, and what the model learns about enabled ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.threads import Stage, staged
from tests.server.serving import configuration, notifications, refusal, result, serving
from treadle.protocol.base import JsonValue

TEXT = '# mine\nmodel = "m"\n'
WRITE = "skills/config/write"


def skill(folder: Path, description: str = "Does it") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "SKILL.md"
    path.write_text(f"---\nname: {folder.name}\ndescription: {description}\n---\n", "utf-8")
    return path


def text_of(home: Path) -> str:
    return (home / "config.toml").read_text("utf-8")


async def test_a_skill_is_off_until_it_is_turned_on_again(home: Path) -> None:
    path = skill(home / "skills" / "one")
    params = {"path": str(path)}
    async with serving(configuration(home, TEXT)) as peer:
        answers = [await result(peer, WRITE, {**params, "enabled": False})]
        (entry,) = (await result(peer, "skills/list", {"cwds": [str(home)]}))["data"]
        written = text_of(home)
        answers.append(await result(peer, WRITE, {**params, "enabled": True}))

    assert answers == [{"effectiveEnabled": False}, {"effectiveEnabled": True}]
    assert [each["enabled"] for each in entry["skills"]] == [False]
    assert written == f'{TEXT}\n[[skills.config]]\npath = "{path}"\nenabled = false\n'
    # Upstream, too, leaves no entry for an enabled skill.
    assert text_of(home) == TEXT


async def test_a_skill_may_be_named_and_need_not_exist(home: Path) -> None:
    async with serving(configuration(home, TEXT)) as peer:
        for name in ("one", "two", "one"):
            await result(peer, WRITE, {"name": name, "enabled": False})
        await result(peer, WRITE, {"name": "two", "enabled": True})

    assert text_of(home) == f'{TEXT}\n[[skills.config]]\nname = "one"\nenabled = false\n'


async def test_other_settings_of_skills_stay(home: Path) -> None:
    text = '[skills]\nother = 1 # mine\n[[skills.config]]\nname = "one"\nenabled = false\n'
    async with serving(configuration(home, text)) as peer:
        await result(peer, WRITE, {"name": "one", "enabled": True})

    assert text_of(home) == "[skills]\nother = 1 # mine\n"


@pytest.mark.parametrize(
    "params", [{}, {"name": ""}, {"name": "a", "path": "/b"}, {"path": None, "name": None}]
)
async def test_exactly_one_of_path_and_name_is_required(home: Path, params: JsonValue) -> None:
    async with serving(configuration(home, TEXT)) as peer:
        error = await refusal(peer, WRITE, {**params, "enabled": False})

    assert error == {
        "code": -32602,
        "message": "skills/config/write requires exactly one of path or name",
        "data": {"kind": "invalidParams"},
    }


async def test_a_relative_path_is_refused(home: Path) -> None:
    async with serving(configuration(home, TEXT)) as peer:
        error = await refusal(peer, WRITE, {"path": "one/SKILL.md", "enabled": False})

    assert error["data"] == {"kind": "invalidParams", "path": "path"}


@pytest.mark.parametrize("text", ["model = [", 'skills = "x"\n'])
async def test_an_incompatible_file_stays_unchanged(home: Path, text: str) -> None:
    async with serving(configuration(home, text)) as peer:
        await notifications(peer, 1)
        error = await refusal(peer, WRITE, {"name": "one", "enabled": False})

    assert (error["code"], error["data"]["kind"]) == (-32603, "invalidConfig")
    assert text_of(home) == text


# -- what the model learns


def about_skills(stage: Stage, request: int) -> list[str]:
    """Return everything about skills in the history, up to a request."""
    items = stage.model.requests[request].body["input"]
    texts = [part["text"] for item in items for part in item["content"]]
    return [text for text in texts if text.startswith("<skills_instructions>")]


async def test_the_model_learns_which_skills_exist_and_when_that_changes(home: Path) -> None:
    one, two = (skill(home / "skills" / name, f"For <{name}>") for name in ("one", "two"))
    async with staged(home) as stage:
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        await client.run(thread_id)
        await client.run(thread_id)
        await client.request(WRITE, {"name": "two", "enabled": False})
        await client.run(thread_id)
        one.unlink()
        await client.run(thread_id)

    def entry(path: Path) -> str:
        name = path.parent.name
        return f"- {name}: For &lt;{name}&gt; (file: {path})"

    lists = [
        [line for line in text.splitlines() if line.startswith("- ")]
        for text in about_skills(stage, -1)
    ]
    assert lists == [[entry(one), entry(two)], [entry(one)], []]
    assert [len(about_skills(stage, at)) for at in range(4)] == [1, 1, 2, 3]


async def test_the_model_learns_nothing_where_there_are_none(home: Path) -> None:
    async with staged(home) as stage:
        client = await stage.client()
        await client.run(await client.start(cwd=str(stage.workspace)))

        assert about_skills(stage, 0) == []


async def test_a_thread_that_is_loaded_again_does_not_repeat_the_list(home: Path) -> None:
    skill(home / "skills" / "one")
    async with staged(home) as stage:
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        await client.run(thread_id)
        await stage.restart()
        client = await stage.client()
        await client.request("thread/resume", {"threadId": thread_id})
        await client.run(thread_id)

        assert len(about_skills(stage, -1)) == 1
