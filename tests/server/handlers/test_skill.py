"""`skills/list`: the skills of the repository and of the user, and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.golden import Golden
from tests.harness.placeholders import placeholders
from tests.server.reference import ask_reference
from tests.server.serving import configuration, notifications, refusal, result, serving
from treadle.engine.project.skills import MAX_DEPTH
from treadle.protocol.base import JsonValue


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "SKILL.md"
    path.write_text(text, "utf-8")
    return path


def skill(folder: Path, description: str = "Does it") -> Path:
    return write(folder, f"---\nname: {folder.name}\ndescription: {description}\n---\n# Do it\n")


def listed(name: str, path: Path, scope: str = "user", **more: JsonValue) -> JsonValue:
    return {
        "name": name,
        "description": "Does it",
        "path": str(path),
        "scope": scope,
        "enabled": True,
        "pluginId": None,
        **more,
    }


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return folder


async def ask(home: Path, params: JsonValue, text: str = "") -> list[JsonValue]:
    there = configuration(home, text, environ={"HOME": str(home)})
    async with serving(there) as peer:
        data: list[JsonValue] = (await result(peer, "skills/list", params))["data"]
        return data


async def test_skills_of_the_repository_precede_those_of_the_user(
    home: Path, project: Path
) -> None:
    inner = project / "a" / "b"
    deep = skill(inner / ".codex" / "skills" / "deep")
    top = skill(project / ".agents" / "skills" / "top")
    mine = skill(home / "skills" / "mine")
    agents = skill(home / ".agents" / "skills" / "agents")
    system = skill(home / "skills" / ".system" / "given")
    skill(project.parent / ".agents" / "skills" / "above")

    assert await ask(home, {"cwds": [str(inner), str(home)], "forceReload": True}) == [
        {
            "cwd": str(inner),
            "skills": [
                listed("deep", deep, "repo"),
                listed("top", top, "repo"),
                listed("agents", agents),
                listed("mine", mine),
                listed("given", system, "system"),
            ],
            "errors": [],
        },
        {
            "cwd": str(home),
            "skills": [
                listed("agents", agents),
                listed("mine", mine),
                listed("given", system, "system"),
            ],
            "errors": [],
        },
    ]


async def test_the_default_folder_is_that_of_the_server(home: Path) -> None:
    (entry,) = await ask(home, {})

    assert entry["cwd"] == str(Path.cwd())


async def test_a_new_skill_is_listed_at_once(home: Path, project: Path) -> None:
    async with serving(configuration(home)) as peer:
        params = {"cwds": [str(project)]}
        before = await result(peer, "skills/list", params)
        new = skill(project / ".agents" / "skills" / "new")
        after = await result(peer, "skills/list", params)

    assert before["data"][0]["skills"] == []
    assert after["data"][0]["skills"] == [listed("new", new, "repo")]


async def test_the_configuration_turns_skills_off(home: Path, project: Path) -> None:
    path, again = skill(home / "skills" / "by_path"), skill(home / "skills" / "again")
    name = skill(home / "skills" / "by_name")
    rules = [
        (f'path = "{path}"', "false"),
        ('name = "by_name"', "false"),
        ('name = "again"', "false"),
        ('name = "again"', "true"),
    ]
    text = "".join(f"[[skills.config]]\n{which}\nenabled = {on}\n" for which, on in rules)
    (entry,) = await ask(home, {"cwds": [str(project)]}, text)

    assert entry["skills"] == [
        listed("again", again),
        listed("by_name", name, enabled=False),
        listed("by_path", path, enabled=False),
    ]


async def test_more_folders_can_be_given_for_one_directory(
    home: Path, project: Path, tmp_path: Path
) -> None:
    """As in 0.118."""
    other = skill(tmp_path / "shared" / "other")

    def roots(cwd: Path, root: str) -> JsonValue:
        return {
            "cwds": [str(project)],
            "perCwdExtraUserRoots": [{"cwd": str(cwd), "extraUserRoots": [root]}],
        }

    shared = str(tmp_path / "shared")
    (entry,) = await ask(home, roots(project, shared))
    (without,) = await ask(home, roots(home, shared))
    async with serving(configuration(home)) as peer:
        error = await refusal(peer, "skills/list", roots(project, "rel"))

    assert entry["skills"] == [listed("other", other)]
    assert without["skills"] == []
    assert (error["code"], error["message"]) == (
        -32600,
        "skills/list perCwdExtraUserRoots extraUserRoots paths must be absolute: rel",
    )


async def test_extra_roots_count_until_they_are_replaced(
    home: Path, project: Path, tmp_path: Path
) -> None:
    one, two = skill(tmp_path / "first" / "one"), skill(tmp_path / "second" / "two")
    params: JsonValue = {"cwds": [str(project)]}
    found = []
    async with serving(configuration(home)) as peer:
        for roots in [["/none", str(tmp_path / "first")], [str(tmp_path / "second")], []]:
            await result(peer, "skills/extraRoots/set", {"extraRoots": roots})
            await notifications(peer, 1)
            answer = await result(peer, "skills/list", params)
            found.append(answer["data"][0]["skills"])

    assert found == [[listed("one", one)], [listed("two", two)], []]


async def test_clients_are_notified_of_extra_roots_and_of_changes_in_them(
    home: Path, tmp_path: Path
) -> None:
    root = tmp_path / "roots"
    async with serving(configuration(home)) as peer:
        await result(peer, "skills/extraRoots/set", {"extraRoots": [str(root)]})
        (first,) = await notifications(peer, 1)
        skill(root / "late")
        (second,) = await notifications(peer, 1)

    assert [first["method"], second["method"]] == ["skills/changed", "skills/changed"]


@pytest.mark.parametrize("root", ["rel", "", "/a\0b"])
async def test_an_invalid_extra_root_is_refused_and_changes_nothing(
    home: Path, tmp_path: Path, root: str
) -> None:
    kept = skill(tmp_path / "kept" / "kept")
    async with serving(configuration(home)) as peer:
        await result(peer, "skills/extraRoots/set", {"extraRoots": [str(tmp_path / "kept")]})
        await notifications(peer, 1)
        error = await refusal(peer, "skills/extraRoots/set", {"extraRoots": ["/x", root]})
        answer = await result(peer, "skills/list", {"cwds": [str(home)]})

    assert error["message"] == f"path must be absolute: {root!r}"
    assert error["data"] == {"kind": "invalidParams", "path": "extraRoots[1]"}
    assert answer["data"][0]["skills"] == [listed("kept", kept)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no head", "missing YAML frontmatter delimited by ---"),
        ("---\nname: x\ndescription: y\n", "missing YAML frontmatter delimited by ---"),
        ("---\nname: x\n---\n", "missing field `description`"),
        (
            f"---\nname: {'x' * 65}\ndescription: y\n---\n",
            "invalid name: exceeds maximum length of 64 characters",
        ),
        (
            f"---\nname: x\ndescription: {'y' * 1025}\n---\n",
            "invalid description: exceeds maximum length of 1024 characters",
        ),
        (
            f"---\ndescription: y\nmetadata:\n  short-description: {'y' * 1025}\n---\n",
            "invalid metadata.short-description: exceeds maximum length of 1024 characters",
        ),
    ],
)
async def test_a_broken_file_is_reported_beside_the_others(
    home: Path, text: str, problem: str
) -> None:
    broken = write(home / "skills" / "broken", text)
    fine = skill(home / "skills" / "fine")
    (entry,) = await ask(home, {"cwds": [str(home)]})

    assert entry["errors"] == [{"path": str(broken), "message": problem}]
    assert entry["skills"] == [listed("fine", fine)]


async def test_links_are_followed_and_circular_ones_end(home: Path, tmp_path: Path) -> None:
    real = skill(tmp_path / "elsewhere" / "real")
    (home / "skills").mkdir()
    (home / "skills" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(home / "skills")
    (entry,) = await ask(home, {"cwds": [str(home)]})

    assert entry["skills"] == [listed("real", real)]


async def test_an_invalid_path_is_refused(home: Path) -> None:
    async with serving(configuration(home)) as peer:
        error = await refusal(peer, "skills/list", {"cwds": ["/a\0b"]})

    assert error["data"] == {"kind": "invalidParams", "path": "cwds[0]"}


HEADS = {
    "plain": "name: plain\ndescription: Use when: something",
    "quotes": "name: 'a ''b'''\ndescription: \"say \\\"hi\\\"\"",
    "block": "name: block\ndescription: |\n  one\n  two\n\n  three",
    "folded": "name: folded\ndescription: >-\n  one\n  two",
    "goes_on": "name:   goes   on  \ndescription: one\n  two\nlicense: MIT",
    "short": "name: short\ndescription: x\nmetadata:\n  author: me\n  short-description: in brief",
    "comment": "name: comment # not this\ndescription: x",
    "nameless": "description: x",
    "not_yaml": "name: [a\ndescription: b: c",
}


async def test_heads_are_parsed_as_by_the_reference(
    golden: Golden, home: Path, project: Path
) -> None:
    for name, head in HEADS.items():
        write(home / "skills" / name, f"---\n{head}\n---\nbody\n")
    for depth in (MAX_DEPTH, MAX_DEPTH + 1):
        skill(home.joinpath("skills", *(f"d{at}" for at in range(1, depth)), f"level{depth}"))
    skill(home / "skills" / ".hidden" / "hidden")
    skill(project / ".codex" / "skills" / "repo")
    params: JsonValue = {"cwds": [str(project)], "forceReload": True}
    if golden.runs_reference:
        (entry,) = ask_reference(golden.program, home, "skills/list", params)["data"]
    else:
        (entry,) = await ask(home, params)

    own = [each for each in entry["skills"] if each["scope"] != "system"]
    assert len(own) == len(HEADS) + 2
    names = {str(home): "<home>", str(project): "<project>"}
    golden.check("heads", placeholders({"errors": entry["errors"], "skills": own}, names))
