"""`agents/openai.yaml` of a skill: texts, icons, dependencies and policy in `skills/list`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.golden import Golden
from tests.harness.placeholders import placeholders
from tests.harness.threads import staged
from tests.server.reference import ask_reference
from tests.server.serving import configuration, result, serving
from treadle.protocol.base import JsonValue

FULL = """\
interface:
  display_name: "Skill Creator"  # shown in menus
  short_description: Create   a skill
  icon_small: ./assets/icon.svg
  icon_large: assets/icon-large.svg
  brand_color: "#111111"
  default_prompt: >-
    Add a new skill
    for triaging CI.
dependencies:
  tools:
    - type: mcp
      value: tracker
      description: The tracker
      transport: streamable_http
      url: https://example.com/mcp
    - {type: env_var, value: TOKEN}
    - value: incomplete
policy:
  allow_implicit_invocation: true
"""
FILES = {
    "full": FULL,
    "empty": "",
    "not_yaml": "interface: [\n",
    "not_a_table": "- a\n",
    "number": "interface:\n  display_name: 5\n  brand_color: red\n  short_description: ''\n",
    "long": f"interface:\n  display_name: {'x' * 65}\n  default_prompt: {'y' * 1025}\n",
    "icons": (
        "interface:\n  icon_small: /etc/icon.svg\n  icon_large: ../../assets/x.svg\n"
        "  short_description: ok\n"
    ),
    "elsewhere": "interface:\n  icon_small: icons/x.svg\n  display_name: ok\n",
    "other_product": "policy:\n  products: [chatgpt]\n",
    "this_product": "policy:\n  products:\n    - codex\n",
    "manual": "policy:\n  allow_implicit_invocation: false\n",
}


def write(home: Path, name: str, metadata: str) -> Path:
    folder = home / "skills" / name
    (folder / "agents").mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does it\n---\n", "utf-8")
    (folder / "agents" / "openai.yaml").write_text(metadata, "utf-8")
    return folder


async def ask(home: Path) -> JsonValue:
    params: JsonValue = {"cwds": [str(home)]}
    async with serving(configuration(home, environ={"HOME": str(home)})) as peer:
        return (await result(peer, "skills/list", params))["data"][0]


async def test_metadata_is_read_as_by_the_reference(golden: Golden, home: Path) -> None:
    for name, text in FILES.items():
        write(home, name, text)
    if golden.runs_reference:
        params: JsonValue = {"cwds": [str(home)]}
        (entry,) = ask_reference(golden.program, home, "skills/list", params)["data"]
    else:
        entry = await ask(home)

    own = [each for each in entry["skills"] if each["scope"] != "system"]
    assert {each["name"] for each in own} == set(FILES) - {"other_product"}
    golden.check("metadata", placeholders(own, {str(home): "<home>"}))


async def test_changed_metadata_is_read_again(home: Path) -> None:
    folder = write(home, "changing", "interface:\n  display_name: before\n")
    async with serving(configuration(home)) as peer:
        names = []
        for name in ("before", "afterwards"):
            text = f"interface:\n  display_name: {name}\n"
            (folder / "agents" / "openai.yaml").write_text(text)
            data = (await result(peer, "skills/list", {"cwds": [str(home)]}))["data"]
            names.append(data[0]["skills"][0]["interface"]["displayName"])

    assert names == ["before", "afterwards"]


@pytest.mark.parametrize("place", ["icon", "assets", "metadata"])
async def test_links_that_leave_the_skill_are_ignored(
    home: Path, tmp_path: Path, place: str
) -> None:
    """Ours: the reference checks the text of the path only."""
    folder = write(home, "linked", FULL)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "icon.svg").write_text("secret")
    if place == "assets":
        (folder / "assets").symlink_to(outside)
    else:
        (folder / "assets").mkdir()
    if place == "icon":
        (folder / "assets" / "icon.svg").symlink_to(outside / "icon.svg")
    if place == "metadata":
        file = folder / "agents" / "openai.yaml"
        (outside / "openai.yaml").write_text(FULL)
        file.unlink()
        file.symlink_to(outside / "openai.yaml")
    (found,) = (await ask(home))["skills"]

    if place == "metadata":
        assert "interface" not in found
    elif place == "icon":
        assert found["interface"]["iconSmall"] is None
        assert found["interface"]["iconLarge"] == str(folder / "assets" / "icon-large.svg")


async def test_a_pipe_in_place_of_the_file_does_not_hang(home: Path) -> None:
    folder = write(home, "piped", FULL)
    (folder / "agents" / "openai.yaml").unlink()
    os.mkfifo(folder / "agents" / "openai.yaml")
    (found,) = (await ask(home))["skills"]

    assert found["name"] == "piped"
    assert "interface" not in found


async def test_a_skill_that_only_the_user_may_select_is_not_offered_to_the_model(
    home: Path,
) -> None:
    """Upstream: `allow_implicit_invocation` hides a skill; the user may still select it."""
    folder = write(home, "manual", FILES["manual"])
    write(home, "open", FILES["this_product"])
    async with staged(home) as stage:
        client = await stage.client()
        thread_id = await client.start(cwd=str(stage.workspace))
        skill = {"type": "skill", "name": "manual", "path": str(folder / "SKILL.md")}
        await client.run(thread_id, input=[skill, {"type": "text", "text": "go"}])

    texts = [
        part["text"] for item in stage.model.requests[-1].body["input"] for part in item["content"]
    ]
    (offered,) = [text for text in texts if text.startswith("<skills_instructions>")]
    assert "- open: " in offered
    assert "- manual: " not in offered
    assert any(text.startswith("<skill>\n<name>manual</name>") for text in texts)
