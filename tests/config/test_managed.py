"""`managed_config.toml`: the administrator's layer above all others."""

from __future__ import annotations

from pathlib import Path

from tests.harness.threads import Client
from tests.server.serving import configuration, result, serving
from treadle.config.configuration import Configuration

USER = 'model = "user"\napproval_policy = "on-request"\nsandbox_mode = "workspace-write"\n'
MANAGED = 'model = "managed"\napproval_policy = "untrusted"\n'


def managed(home: Path, text: str = MANAGED, *flags: str, user: str = USER) -> Configuration:
    """A configuration with a managed layer."""
    settings = configuration(home, user, *flags)
    (home.parent / "system" / "managed_config.toml").write_text(text, "utf-8")
    return settings


async def test_it_wins_over_the_file_and_the_command_line(home: Path) -> None:
    """Upstream: the highest layer of `config/read`, of type `legacyManagedConfigTomlFromFile`."""
    async with serving(managed(home, MANAGED, "model=flag")) as peer:
        answer = await result(peer, "config/read", {"includeLayers": True})

    file = str(home.parent / "system" / "managed_config.toml")
    name = {"type": "legacyManagedConfigTomlFromFile", "file": file}
    assert (answer["config"]["model"], answer["config"]["sandbox_mode"]) == (
        "managed",
        "workspace-write",
    )
    assert answer["origins"]["model"]["name"] == name
    assert answer["layers"][0]["name"] == name


async def test_it_wins_over_the_config_of_a_request(home: Path) -> None:
    async with serving(managed(home)) as peer:
        answer = await Client(peer).request("thread/start", {"config": {"model": "request"}})

    assert (answer["model"], answer["approvalPolicy"]) == ("managed", "untrusted")


async def test_its_policies_are_requirements(home: Path) -> None:
    """Upstream: other policies are refused; a stricter sandbox is not."""
    text = 'approval_policy = "untrusted"\nsandbox_mode = "workspace-write"\n'
    async with serving(managed(home, text)) as peer:
        client = Client(peer)
        requirements = await client.request("configRequirements/read", {})
        refused = [
            await client.refusal("thread/start", {"approvalPolicy": "never"}),
            await client.refusal("thread/start", {"sandbox": "danger-full-access"}),
        ]
        stricter = await client.request("thread/start", {"sandbox": "read-only"})

    assert requirements["requirements"]["allowedApprovalPolicies"] == ["untrusted"]
    assert requirements["requirements"]["allowedSandboxModes"] == ["workspace-write", "read-only"]
    assert all("is not allowed here" in error.message for error in refused)
    assert stricter["sandbox"]["type"] == "readOnly"


async def test_a_file_of_requirements_counts_besides(home: Path) -> None:
    settings = managed(home)
    demands = 'allowed_approval_policies = ["never", "untrusted"]\n'
    (home.parent / "system" / "requirements.toml").write_text(demands, "utf-8")
    async with serving(settings) as peer:
        answer = await result(peer, "configRequirements/read", {})

    assert answer["requirements"]["allowedApprovalPolicies"] == ["never", "untrusted"]


async def test_a_client_learns_that_a_written_value_does_not_apply(home: Path) -> None:
    async with serving(managed(home)) as peer:
        edit = {"keyPath": "model", "value": "mine", "mergeStrategy": "replace"}
        answer = await result(peer, "config/value/write", edit)

    assert answer["status"] == "okOverridden"
    assert answer["overriddenMetadata"]["effectiveValue"] == "managed"
    assert "managed_config.toml" in answer["overriddenMetadata"]["message"]


async def test_a_change_of_it_applies_to_the_next_request(home: Path) -> None:
    async with serving(managed(home)) as peer:
        await result(peer, "config/read", {})
        (home.parent / "system" / "managed_config.toml").write_text('model = "next"\n')
        answer = await result(peer, "config/read", {})

    assert answer["config"]["model"] == "next"


async def test_a_damaged_one_stops_new_threads(home: Path) -> None:
    """Ours: a file that cannot be read might forbid something."""
    async with serving(managed(home, "model = [")) as peer:
        client = Client(peer)
        refused = [
            await client.refusal("thread/start", {}),
            await client.refusal("configRequirements/read", {}),
        ]

    assert all("managed_config.toml" in error.message for error in refused)
