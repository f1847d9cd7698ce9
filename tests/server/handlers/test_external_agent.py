"""`externalAgentConfig/*`: detects and imports what users have for Claude Code and Cursor."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.harness.threads import Client
from tests.server.serving import client_of, configuration, refusal, result, running
from treadle.config.configuration import Configuration
from treadle.protocol.base import JsonValue

SETTINGS: JsonValue = {
    "model": "opus",
    "env": {"FOO": "bar"},
    "sandbox": {"enabled": True},
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo", "timeout": 10}]}
        ],
        "Stop": [{"hooks": [{"type": "prompt", "prompt": "no command"}]}],
        "Weird": [{"hooks": [{"type": "command", "command": "echo"}]}],
    },
}
SERVERS: JsonValue = {
    "process": {"command": "npx", "args": ["-y", "x"], "env": {"TOKEN": "${TOKEN}", "K": "lit"}},
    "http": {
        "type": "http",
        "url": "https://example.test/mcp",
        "headers": {"Authorization": "Bearer ${MINE}", "X-A": "${A}", "X-B": "b"},
    },
    "sse": {"type": "sse", "url": "https://example.test/sse"},
    "off": {"command": "a", "disabled": True},
}
SKILL = "---\nname: greet\ndescription: Greets\n---\nSay hi. Read CLAUDE.md.\n"


class Machine:
    """The folders of a user with Claude Code and Cursor."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "user"
        self.project = folder / "project"
        (self.project / ".git").mkdir(parents=True)
        write(self.user / ".claude/settings.json", json.dumps(SETTINGS))
        write(self.user / ".claude.json", json.dumps({"mcpServers": SERVERS}))
        write(self.user / ".claude/CLAUDE.md", "Like CLAUDE.md says.\n")
        write(self.user / ".claude/skills/greet/SKILL.md", SKILL)
        write(self.user / ".claude/skills/greet/data/list.txt", "data")
        write(self.user / ".claude/commands/sub/plain.md", "Do it.\n")
        write(self.user / ".claude/commands/fix.md", "---\ndescription: Fix\n---\nFix $ARGUMENTS\n")
        write(self.project / "CLAUDE.md", "# project\n")
        write(self.project / ".mcp.json", json.dumps({"mcpServers": {"own": {"command": "own"}}}))
        write(self.project / ".claude/settings.json", json.dumps({"env": {"P": "1"}}))
        write(self.project / ".claude/settings.local.json", json.dumps({"env": {"PRIVATE": "1"}}))
        write(self.project / ".cursorrules", "cursor rule\n")
        write(self.project / ".cursor/rules/a.mdc", "---\nalwaysApply: true\n---\nalways\n")
        write(self.project / ".cursor/rules/b.mdc", "---\nalwaysApply: false\n---\nsometimes\n")
        write(self.project / ".cursor/commands/c.md", "cursor command\n")
        write(
            self.project / ".cursor/mcp.json", json.dumps({"mcpServers": {"c": {"command": "c"}}})
        )
        self.home = folder / "home"

    def configuration(self, text: str = "") -> Configuration:
        """Return the configuration of a server of this user."""
        return configuration(self.home, text, environ={"HOME": str(self.user)})


def write(path: Path, text: str) -> None:
    """Write a file, and make its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def detect(client: Client, machine: Machine, **more: JsonValue) -> list[JsonValue]:
    """Return what can be imported from the home and the project."""
    params = {"includeHome": True, "cwds": [str(machine.project)], **more}
    answer = await client.request("externalAgentConfig/detect", params)
    items: list[JsonValue] = answer["items"]
    return items


async def import_(client: Client, items: list[JsonValue], **more: JsonValue) -> JsonValue:
    """Import items, and return the notification of the end."""
    await client.request("externalAgentConfig/import", {"migrationItems": items, **more})
    return (await client.until("externalAgentConfig/import/completed"))[-1]["params"]


def names(item: JsonValue) -> list[str]:
    """Return the names of an item's details."""
    details = item["details"] or {}
    return [each["name"] for group in details.values() for each in group]


async def test_the_parts_of_each_place_are_named_before_anything_is_written(
    machine: Machine,
) -> None:
    """Upstream: kinds, names and order; commands with arguments are left out."""
    async with running(machine.configuration()) as server, client_of(server) as peer:
        items = await detect(Client(peer), machine)

    assert [(each["itemType"], each["cwd"] is not None, names(each)) for each in items] == [
        ("CONFIG", False, []),
        ("MCP_SERVER_CONFIG", False, ["http", "process"]),
        ("HOOKS", False, ["PreToolUse"]),
        ("SKILLS", False, ["greet"]),
        ("COMMANDS", False, ["source-command-sub-plain"]),
        ("AGENTS_MD", False, []),
        ("CONFIG", True, []),
        ("MCP_SERVER_CONFIG", True, ["own"]),
        ("AGENTS_MD", True, []),
    ]
    assert not (machine.user / ".agents").exists()
    assert not (machine.project / ".codex").exists()
    assert (machine.home / "config.toml").read_text() == ""


async def test_an_import_writes_what_was_detected_and_nothing_remains(machine: Machine) -> None:
    async with running(machine.configuration("# mine\n")) as server, client_of(server) as peer:
        client = Client(peer)
        completed = await import_(client, await detect(client, machine))
        remaining = await detect(client, machine)

    assert [failure for each in completed["itemTypeResults"] for failure in each["failures"]] == []
    assert remaining == []
    text = (machine.home / "config.toml").read_text()
    assert text.startswith("# mine\n")
    assert tomllib.loads(text) == {
        "sandbox_mode": "workspace-write",
        "shell_environment_policy": {"set": {"FOO": "bar"}},
        "mcp_servers": {
            "http": {
                "url": "https://example.test/mcp",
                "bearer_token_env_var": "MINE",
                "env_http_headers": {"X-A": "A"},
                "http_headers": {"X-B": "b"},
            },
            "process": {
                "command": "npx",
                "args": ["-y", "x"],
                "env_vars": ["TOKEN"],
                "env": {"K": "lit"},
            },
        },
    }
    hooks = json.loads((machine.home / "hooks.json").read_text())
    assert hooks == {"hooks": {"PreToolUse": SETTINGS["hooks"]["PreToolUse"]}}
    assert (machine.home / "AGENTS.md").read_text() == "Like AGENTS.md says.\n"
    skills = machine.user / ".agents/skills"
    assert (skills / "greet/SKILL.md").read_text() == SKILL.replace("CLAUDE", "AGENTS")
    assert (skills / "greet/data/list.txt").read_text() == "data"
    assert "Do it." in (skills / "source-command-sub-plain/SKILL.md").read_text()
    project = tomllib.loads((machine.project / ".codex/config.toml").read_text())
    assert project == {
        "shell_environment_policy": {"set": {"P": "1"}},
        "mcp_servers": {"own": {"command": "own"}},
    }
    assert (machine.project / "AGENTS.md").read_text() == "# project\n"


async def test_the_imported_skills_can_be_used(machine: Machine) -> None:
    async with running(machine.configuration()) as server, client_of(server) as peer:
        client = Client(peer)
        await import_(client, await detect(client, machine))
        listed = await client.request("skills/list", {"cwds": [str(machine.project)]})

    found = [(each["name"], each["description"]) for each in listed["data"][0]["skills"]]
    assert ("greet", "Greets") in found
    described = "Migrated source command `sub-plain`"
    assert ("source-command-sub-plain", described) in found


async def test_cursor_has_servers_commands_and_rules(machine: Machine) -> None:
    """Rules that always apply become instructions too; upstream reads only `.cursorrules`."""
    async with running(machine.configuration()) as server, client_of(server) as peer:
        client = Client(peer)
        items = await detect(client, machine, migrationSource="cursor")
        completed = await import_(client, items, migrationSource="cursor")

    kinds = [(each["itemType"], each["cwd"] is not None, names(each)) for each in items]
    assert kinds == [
        ("MCP_SERVER_CONFIG", True, ["c"]),
        ("COMMANDS", True, ["source-command-c"]),
        ("AGENTS_MD", True, []),
    ]
    assert [failure for each in completed["itemTypeResults"] for failure in each["failures"]] == []
    assert (machine.project / "AGENTS.md").read_text() == "cursor rule\n\nalways\n"


async def test_nothing_of_the_user_is_replaced(machine: Machine) -> None:
    """Settings are only added; a text that differs fails."""
    mine = (
        '[mcp_servers.process]\ncommand = "mine"\n\n[shell_environment_policy.set]\nFOO = "mine"\n'
    )
    write(machine.home / "AGENTS.md", "mine")
    write(machine.user / ".agents/skills/greet/data/list.txt", "mine")
    async with running(machine.configuration(mine)) as server, client_of(server) as peer:
        client = Client(peer)
        items = await detect(client, machine)
        completed = await import_(client, items)

    assert ("MCP_SERVER_CONFIG", None, ["http"]) in [
        (each["itemType"], each["cwd"], names(each)) for each in items
    ]
    table = tomllib.loads((machine.home / "config.toml").read_text())
    assert table["mcp_servers"]["process"] == {"command": "mine"}
    assert table["shell_environment_policy"] == {"set": {"FOO": "mine"}}
    assert (machine.home / "AGENTS.md").read_text() == "mine"
    assert (machine.user / ".agents/skills/greet/data/list.txt").read_text() == "mine"
    assert not (machine.user / ".agents/skills/greet/SKILL.md").exists()
    (skills,) = [each for each in completed["itemTypeResults"] if each["itemType"] == "SKILLS"]
    assert [(each["source"], each["failureStage"]) for each in skills["failures"]] == [
        ("greet", "import")
    ]


async def test_only_the_selected_names_are_imported(machine: Machine) -> None:
    item = {
        "itemType": "MCP_SERVER_CONFIG",
        "description": "",
        "cwd": None,
        "details": {"mcpServers": [{"name": "http"}, {"name": "missing"}]},
    }
    async with running(machine.configuration()) as server, client_of(server) as peer:
        completed = await import_(Client(peer), [item])

    (found,) = completed["itemTypeResults"]
    assert [each["target"] for each in found["successes"]] == ["http"]
    assert [each["source"] for each in found["failures"]] == ["missing"]
    assert list(tomllib.loads((machine.home / "config.toml").read_text())["mcp_servers"]) == [
        "http"
    ]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"command": "a", "env": {"A": "x${B}"}}, "env.A: variables"),
        ({"command": "a", "args": "b"}, "args: expected a list"),
        ({"url": "https://x", "headers": {"A": 1}}, "headers: expected"),
    ],
)
async def test_a_server_that_cannot_be_expressed_fails_alone(
    machine: Machine, entry: JsonValue, reason: str
) -> None:
    servers = {"bad": entry, "good": {"command": "good"}, "no name": {"command": "x"}}
    write(machine.user / ".claude.json", json.dumps({"mcpServers": servers}))
    async with running(machine.configuration()) as server, client_of(server) as peer:
        client = Client(peer)
        completed = await import_(client, (await detect(client, machine))[1:2])

    (found,) = completed["itemTypeResults"]
    assert [each["source"] for each in found["successes"]] == ["good"]
    bad, unnamed = found["failures"]
    assert reason in bad["message"]
    assert "no name" in unnamed["message"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (".claude/settings.json", "{broken", "malformed"),
        (".claude/settings.json", "[1]", "expected an object"),
        (".claude.json", '{"mcpServers": 1}', "mcpServers: expected an object"),
        (".claude/CLAUDE.md", "x" * 1_048_577, "larger than"),
    ],
)
async def test_a_file_that_cannot_be_read_is_reported_and_the_rest_is_found(
    machine: Machine, name: str, content: str, reason: str
) -> None:
    write(machine.user / name, content)
    async with running(machine.configuration()) as server, client_of(server) as peer:
        client = Client(peer)
        items = await detect(client, machine)
        warned = (await client.until("configWarning"))[-1]["params"]["summary"]

    assert name in warned
    assert reason in warned
    assert "SKILLS" in [each["itemType"] for each in items]


async def test_no_link_is_followed(machine: Machine, tmp_path: Path) -> None:
    """A repository decides neither what is read nor where it is written."""
    write(tmp_path / "secret", "secret")
    (machine.project / "CLAUDE.md").unlink()
    (machine.project / "CLAUDE.md").symlink_to(tmp_path / "secret")
    (tmp_path / "outside").mkdir()
    (machine.project / ".codex").symlink_to(tmp_path / "outside")
    async with running(machine.configuration()) as server, client_of(server) as peer:
        client = Client(peer)
        items = await detect(client, machine, includeHome=False)
        await import_(client, items)

    assert "AGENTS_MD" not in [each["itemType"] for each in items]
    assert list((tmp_path / "outside").iterdir()) == []
    assert not (machine.project / "AGENTS.md").exists()


async def test_texts_of_a_repository_are_limited_together(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are in memory at once: 2,000 commands of 1 MiB each would exhaust it."""
    monkeypatch.setattr("treadle.server.migration.places.MAX_TEXT_BYTES", 10_000)
    for number in range(5):
        write(machine.project / ".claude/commands" / f"{number}.md", "x" * 3000)
    async with running(machine.configuration()) as server, client_of(server) as peer:
        client = Client(peer)
        items = await detect(client, machine, includeHome=False)
        warned = (await client.until("configWarning"))[-1]["params"]["summary"]

    assert "more than 10000 bytes of text" in warned
    assert "COMMANDS" not in [each["itemType"] for each in items]


async def test_private_servers_of_a_project_stay_out_of_its_files(machine: Machine) -> None:
    """The user's keys for a project are in the home, and `.codex` may be shared."""
    private = {"private": {"command": "x", "env": {"API_KEY": "very-secret"}}}
    projects = {"projects": {str(machine.project): {"mcpServers": private}}}
    write(machine.user / ".claude.json", json.dumps(projects))
    async with running(machine.configuration()) as server, client_of(server) as peer:
        client = Client(peer)
        await import_(client, await detect(client, machine))

    written = (machine.project / ".codex" / "config.toml").read_text("utf-8")
    assert "own" in written
    assert "very-secret" not in written


async def test_an_imported_hook_does_not_spoil_the_file_of_hooks(machine: Machine) -> None:
    """A file that is nested too deeply would switch off the hooks that the project has."""
    hook = {"type": "command", "command": "x", "timeout": json.loads("[" * 500 + "]" * 500)}
    settings = {"hooks": {"Stop": [{"hooks": [hook]}]}}
    write(machine.project / ".claude/settings.json", json.dumps(settings))
    async with running(machine.configuration()) as server, client_of(server) as peer:
        client = Client(peer)
        await import_(client, await detect(client, machine, includeHome=False))

    document = json.loads((machine.project / ".codex" / "hooks.json").read_text("utf-8"))
    assert document["hooks"]["Stop"] == [{"hooks": [{"type": "command", "command": "x"}]}]


async def test_imports_are_listed_under_the_next_server(machine: Machine) -> None:
    async with running(machine.configuration()) as server, client_of(server) as peer:
        client = Client(peer)
        completed = await import_(client, await detect(client, machine), providerId="mine")
        recorded = await client.request(
            "externalAgentConfig/import/recordHistory",
            {
                "providerId": "own",
                "itemTypeResults": [
                    {
                        "itemType": "SESSIONS",
                        "failures": [],
                        "successes": [{"itemType": "SESSIONS", "title": "one"}],
                    }
                ],
            },
        )
    history = machine.home / "external-agent-imports.jsonl"
    history.write_text(f"{history.read_text()}damaged\n")
    async with running(machine.configuration()) as server, client_of(server) as peer:
        listed = await result(peer, "externalAgentConfig/import/readHistories", {})

    assert [(each["importId"], each["providerId"]) for each in listed["data"]] == [
        (recorded["importId"], "own"),
        (completed["importId"], "mine"),
    ]
    assert listed["data"][0]["successes"][0]["title"] == "one"
    assert len(listed["data"][1]["successes"]) > 5


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("detect", {"cwds": ["relative"]}, "cwds"),
        ("detect", {"cwds": ["/x"] * 101}, "cwds"),
        ("detect", {"cwds": "x"}, "cwds"),
        ("import", {}, "migrationItems"),
        ("import", {"migrationItems": [{"itemType": "X", "description": ""}]}, "itemType"),
        (
            "import",
            {"migrationItems": [{"itemType": "SKILLS", "description": "", "cwd": "a"}]},
            "cwd",
        ),
    ],
)
async def test_a_wrong_field_is_named(
    machine: Machine, method: str, params: JsonValue, field: str
) -> None:
    async with running(machine.configuration()) as server, client_of(server) as peer:
        error = await refusal(peer, f"externalAgentConfig/{method}", params)

    assert field in json.dumps(error)


async def test_a_folder_that_is_missing_has_nothing_to_import(machine: Machine) -> None:
    """Upstream."""
    async with running(machine.configuration()) as server, client_of(server) as peer:
        params = {"cwds": [str(machine.project / "missing")]}
        answer = await result(peer, "externalAgentConfig/detect", params)

    assert answer["items"] == []
