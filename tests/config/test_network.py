"""The managed network in the configuration, and which threads have it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.threads import staged
from tests.sandbox.network.commands import FETCH, website
from treadle.config.configuration import Configuration
from treadle.config.file import ConfigError
from treadle.protocol.base import JsonValue
from treadle.sandbox.network.policy import NetworkPolicy

ALLOWED = "127.0.0.3"
OPEN_PROFILE = """
default_permissions = "p"
permissions.p = {extends = ":workspace", network = {enabled = true}}
"""


def policy(home: Path, text: str, requirements: str = "") -> NetworkPolicy | None:
    """Return the managed network of a configuration."""
    system = home.parent / "system"
    system.mkdir()
    (system / "requirements.toml").write_text(requirements)
    (home / "config.toml").write_text(text)
    return Configuration(home, system=system).effective(None).network()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "features.network_proxy = false",
        'features.network_proxy = {enabled = false, domains = {"a.b" = "allow"}}',
        'default_permissions = "p"\npermissions.p = {extends = ":workspace"}',
        'default_permissions = "p"\npermissions.p = {extends = ":workspace", network = {}}',
        OPEN_PROFILE,
        'permissions.p = {extends = ":workspace", network = {domains = {"a.b" = "allow"}}}',
    ],
)
def test_there_is_no_managed_network_by_default(home: Path, text: str) -> None:
    assert policy(home, text) is None


def test_the_feature_is_a_switch_or_a_table(home: Path) -> None:
    assert policy(home, "features.network_proxy = true") == NetworkPolicy()


def test_the_table_of_the_feature_accepts_the_keys_of_the_profile(home: Path) -> None:
    text = """
[features.network_proxy]
enabled = true
mode = "limited"
allow_local_binding = true
enable_socks5 = false
proxy_url = "http://127.0.0.1:4000"
domains = {"a.b" = "allow", "*.c" = "deny"}
"""
    assert policy(home, text) == NetworkPolicy(
        domains=(("a.b", "allow"), ("*.c", "deny")),
        is_limited=True,
        allows_local=True,
        has_socks=False,
    )


def test_a_profile_that_lists_hosts_has_one_without_the_feature(home: Path) -> None:
    """Ours: the reference would open the whole network then."""
    text = """
default_permissions = "inner"
[permissions.outer]
extends = ":workspace"
network = {enabled = true, domains = {"a.b" = "allow", "c.d" = "allow"}}
[permissions.inner]
extends = "outer"
network = {domains = {"c.d" = "deny"}}
"""
    assert policy(home, text) == NetworkPolicy(domains=(("a.b", "allow"), ("c.d", "deny")))


def test_an_administrators_network_applies_to_everyone(home: Path) -> None:
    demands = """
[experimental_network]
allow_local_binding = true
allowed_domains = ["x.y"]
denied_domains = ["evil.y"]
[experimental_network.domains]
"z.y" = "allow"
"""
    text = 'features.network_proxy = {enabled = true, domains = {"a.b" = "allow"}}'
    assert policy(home, text, demands) == NetworkPolicy(
        domains=(("a.b", "allow"), ("x.y", "allow"), ("z.y", "allow"), ("evil.y", "deny")),
        allows_local=True,
        is_required=True,
    )


def test_an_administrators_list_can_be_exclusive(home: Path) -> None:
    demands = """
[experimental_network]
managed_allowed_domains_only = true
[experimental_network.domains]
"x.y" = "allow"
"""
    text = 'features.network_proxy = {enabled = true, domains = {"a.b" = "allow", "c.d" = "deny"}}'
    assert policy(home, text, demands) == NetworkPolicy(
        domains=(("c.d", "deny"), ("x.y", "allow")), is_required=True, is_fixed=True
    )


def test_an_administrator_can_turn_it_off(home: Path) -> None:
    assert policy(home, "", "[experimental_network]\nenabled = false\n") is None


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ("{enabled = true, mitm = {enabled = true}}", "features.network_proxy.mitm"),
        ('{enabled = true, mode = "half"}', "features.network_proxy.mode"),
        ('{enabled = true, domains = {"a b" = "allow"}}', "features.network_proxy.domains.a b"),
        ('{enabled = true, domains = {"a.b" = "ask"}}', "features.network_proxy.domains.a.b"),
        ('{enabled = true, domains = ["a.b"]}', "features.network_proxy.domains"),
        ("{enabled = true, enable_socks5 = 1}", "features.network_proxy.enable_socks5"),
    ],
)
def test_settings_that_cannot_be_enforced_are_refused(home: Path, table: str, path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        policy(home, f"features.network_proxy = {table}")

    assert refused.value.key == path


async def test_commands_of_clients_are_limited_to_the_listed_hosts(home: Path) -> None:
    """Upstream: no approval is requested for them."""
    more = f"""
[sandbox_workspace_write]
network_access = true
[features.network_proxy]
enabled = true
domains = {{"{ALLOWED}" = "allow"}}
"""
    async with (
        website(ALLOWED) as (port, _heads),
        website("127.0.0.4") as (other, heads),
        staged(home) as stage,
    ):
        stage.configure(more)
        client = await stage.client()
        urls = [f"http://{ALLOWED}:{port}/", f"http://127.0.0.4:{other}/"]
        params: JsonValue = {
            "command": ["python3", "-c", FETCH, *urls],
            "permissionProfile": ":workspace",
        }
        done = await client.request("command/exec", params)

    assert done["stdout"].startswith("200 hello\n403 blocked-by-allowlist")
    assert heads == []


def test_none_of_its_modules_are_imported_when_it_is_off(home: Path) -> None:
    """Ours: threads without a managed network do not pay for it."""
    script = """
import pathlib, sys
import treadle.engine.terminals.attempt, treadle.sandbox.backends.base, treadle.sandbox.process
import treadle.server.handlers.command
from treadle.config.configuration import Configuration
assert Configuration(pathlib.Path(sys.argv[1])).effective(None).network() is None
print([name for name in sys.modules if "network" in name and "protocol" not in name])
"""
    command = [sys.executable, "-c", script, str(home)]

    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout == "[]\n"
