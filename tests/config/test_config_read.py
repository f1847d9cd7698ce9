"""What clients can read of the configuration."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.harness.golden import Golden
from tests.harness.placeholders import placeholders
from tests.server.reference import ask_reference
from tests.server.serving import (
    client_of,
    configuration,
    notifications,
    refusal,
    result,
    running,
    serving,
)
from treadle.config.configuration import Configuration
from treadle.config.file import Overrides
from treadle.protocol.base import JsonValue
from treadle.server.handlers.config import send_warnings

USER = """
model = "m-user"
approval_policy = "never"
model_provider = "mock"
no_such_key = 1
notify = ["a", "b"]
[model_providers.mock]
name = "Mock"
base_url = "http://127.0.0.1:1/v1"
http_headers = { "X-A" = "1" }
[features]
apps = true
[sandbox_workspace_write]
network_access = true
writable_roots = ["here"]
[mcp_servers.one]
command = "true"
[tools]
web_search = true
"""
ROOT = 'model = "m-root"\nmodel_provider = "evil"\nsandbox_mode = "workspace-write"\n'
INNER = """
model_reasoning_effort = "high"
odd = 1
[sandbox_workspace_write]
writable_roots = ["there"]
"""
FLAGS = ["model_verbosity=low", 'mcp_servers.two={command="x"}', "bogus.key=1"]


def make_workspace(home: Path, folder: Path) -> Path:
    """Create a repository with a file at its root and one below, trusted by the user."""
    inner = folder / "repository" / "inner"
    for place, text in ((inner.parent, ROOT), (inner, INNER)):
        (place / ".codex").mkdir(parents=True)
        (place / ".codex" / "config.toml").write_text(text, "utf-8")
    subprocess.run(["git", "init", "-q", str(inner.parent)], check=True)
    trust = f'[projects."{inner.parent}"]\ntrust_level = "trusted"\n'
    (home / "config.toml").write_text(USER + trust, "utf-8")
    return inner


def without_reasons(layers: JsonValue) -> JsonValue:
    """Return the layers without the reasons, which each server words differently."""
    return [{**layer, "disabledReason": bool(layer.get("disabledReason"))} for layer in layers]


async def test_config_read_answers_as_the_reference_does(
    golden: Golden, home: Path, tmp_path: Path
) -> None:
    """Upstream: the same home and flags give the same keys, origins and layers."""
    inner = make_workspace(home, tmp_path)
    params = {"includeLayers": True, "cwd": str(inner)}
    if golden.runs_reference:
        answer = ask_reference(golden.program, home, "config/read", params, flags=FLAGS)
    else:
        async with serving(Configuration(home, Overrides.parse(FLAGS), {})) as peer:
            answer = await result(peer, "config/read", params)

    names = {str(home): "<home>", str(tmp_path): "<folder>"}
    golden.check("layers", placeholders(answer, names), assert_same_configuration)


def assert_same_configuration(theirs: JsonValue, ours: JsonValue) -> None:
    """Compare two answers of `config/read`."""
    assert ours["config"].keys() == theirs["config"].keys()
    assert ours["origins"] == theirs["origins"]
    assert without_reasons(ours["layers"]) == without_reasons(theirs["layers"])
    # Parts that this server does not have, or names differently.
    ours_alone = {"features", "chatgpt_base_url"}
    different = {key for key in ours["config"] if ours["config"][key] != theirs["config"][key]}
    assert different == ours_alone


async def test_an_untrusted_project_is_listed_with_the_reason_it_is_ignored(
    home: Path, tmp_path: Path
) -> None:
    inner = make_workspace(home, tmp_path)
    async with serving(configuration(home, 'model = "m"')) as peer:
        params = {"includeLayers": True, "cwd": str(inner)}
        answer = await result(peer, "config/read", params)

    assert answer["config"]["model"] == "m"
    assert [layer["name"]["type"] for layer in answer["layers"]] == [
        "project",
        "project",
        "user",
        "system",
    ]
    assert [layer["disabledReason"] is None for layer in answer["layers"]] == [
        False,
        False,
        True,
        True,
    ]


async def test_layers_are_included_only_on_request(home: Path) -> None:
    async with serving(configuration(home)) as peer:
        answer = await result(peer, "config/read", {})

    assert (answer["origins"], answer["layers"]) == ({}, None)


async def test_a_broken_configuration_is_an_error_that_names_the_key(home: Path) -> None:
    async with serving(configuration(home, 'approval_policy = "bogus"')) as peer:
        await notifications(peer, 1)
        error = await refusal(peer, "config/read", {})

    assert error["code"] == -32603
    assert error["message"].startswith("invalid configuration: unknown variant `bogus`")
    assert error["data"] == {"kind": "invalidConfig", "path": "approval_policy"}


async def test_clients_receive_the_warnings(home: Path) -> None:
    settings = configuration(home, "odd = 1")
    async with running(settings) as server, client_of(server) as peer:
        (session,) = server.sessions
        send_warnings(session, settings.effective())
        (message,) = await notifications(peer, 1)

    assert message["method"] == "configWarning"
    assert message["params"] == {
        "summary": "1 configuration setting is not known; look for typing errors.\n"
        f"  user ({home / 'config.toml'}): `odd` is ignored.",
        "details": None,
    }


class TestRequirements:
    async def test_without_requirements_there_are_none(self, home: Path) -> None:
        """Upstream's answer on a machine without requirements."""
        async with serving(configuration(home)) as peer:
            answer = await result(peer, "configRequirements/read")

        assert answer == {"requirements": None, "supportsIndependentSpeedModes": True}

    async def test_requirements_are_listed_in_the_words_of_the_protocol(self, home: Path) -> None:
        demands = 'allowed_sandbox_modes = ["read-only"]\n[features]\napps = false\n'
        async with serving(configuration(home, requirements=demands)) as peer:
            answer = await result(peer, "configRequirements/read")

        requirements = {
            key: value for key, value in answer["requirements"].items() if value is not None
        }
        assert requirements == {
            "allowedSandboxModes": ["read-only"],
            "featureRequirements": {"apps": False},
        }


async def test_permission_profiles_are_the_built_in_and_the_configured(home: Path) -> None:
    text = '[permissions.mine]\ndescription = "just this"'
    async with serving(configuration(home, text)) as peer:
        answer = await result(peer, "permissionProfile/list", {"cursor": "1"})

    assert answer == {
        "data": [
            {"id": ":workspace", "description": None, "allowed": True},
            {"id": ":danger-full-access", "description": None, "allowed": True},
            {"id": "mine", "description": "just this", "allowed": True},
        ],
        "nextCursor": None,
    }


async def test_the_collaboration_modes_are_plan_and_default(home: Path) -> None:
    """Upstream's list."""
    async with serving(configuration(home)) as peer:
        answer = await result(peer, "collaborationMode/list", {})

    assert answer == {
        "data": [
            {"name": "Plan", "mode": "plan", "model": None, "reasoning_effort": "medium"},
            {"name": "Default", "mode": "default", "model": None, "reasoning_effort": None},
        ]
    }


async def test_an_unusable_configuration_is_reported_right_after_the_handshake(
    home: Path,
) -> None:
    """Upstream starts with defaults and reports it; users should not have to guess."""
    async with running(configuration(home, "model = [")) as server, client_of(server) as peer:
        (message,) = await notifications(peer, 1)

    assert message["method"] == "configWarning"
    assert str(home / "config.toml") in json.dumps(message["params"])
