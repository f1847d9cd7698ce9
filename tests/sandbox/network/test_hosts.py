"""Spellings of hosts, patterns over them, and what a list of them lets through."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from treadle.sandbox.network.hosts import covers, is_local, is_local_name, is_pattern, normal
from treadle.sandbox.network.policy import Blocked, Destination, NetworkPolicy
from treadle.sandbox.policy import UNRESTRICTED, Confinement


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("_dmarc.a-b.example", "_dmarc.a-b.example"),
        ("127.1", "127.1"),
    ],
)
def test_a_host_has_one_spelling(given: str, host: str) -> None:
    assert normal(given) == host


@pytest.mark.parametrize(
    "given",
    ["", ".", "a b", "a..b", "a/b", "a@b", "a:80", "-a", "fe80::1%eth0", "bücher", "a" * 254],
)
def test_what_is_no_host_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="no host"):
        normal(given)


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("a.test", ["a.test"], ["b.a.test", "xa.test", "test"]),
        ("A.test.", ["a.test"], ["b.a.test"]),
        ("*.a.test", ["b.a.test", "c.b.a.test"], ["a.test", "ba.test"]),
        ("**.a.test", ["a.test", "b.a.test", "c.b.a.test"], ["ba.test"]),
        ("*", ["a.test", "127.0.0.1"], []),
        ("::1", ["::1"], ["::2"]),
    ],
)
def test_patterns_cover_hosts_as_upstream(
    pattern: str, covered: list[str], others: list[str]
) -> None:
    assert is_pattern(pattern)
    assert [host for host in [*covered, *others] if covers(pattern, host)] == covered


@pytest.mark.parametrize("text", ["", "*.", "a.*", "*a.test", "***.a", "http://a.test"])
def test_what_is_no_pattern_is_known(text: str) -> None:
    assert not is_pattern(text)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),  # noqa: S104 - an address to refuse
        *("::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *("64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1"),
    ],
)
def test_what_is_not_of_the_public_network_is_local(address: str) -> None:
    assert is_local(ip_address(address))
    assert is_local_name(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_what_is_public_is_not_local(address: str) -> None:
    assert not is_local(ip_address(address))


def test_names_are_local_by_their_spelling_too() -> None:
    names = ["localhost", "a.localhost", "example.com", "localhost.example"]

    assert [is_local_name(name) for name in names] == [True, True, False, False]


def test_a_denial_wins_whatever_its_place() -> None:
    policy = NetworkPolicy(domains=(("*.a.test", "allow"), ("x.a.test", "deny"), ("*", "allow")))

    hosts = ["b.a.test", "x.a.test", "other.test"]
    assert [policy.permission(host) for host in hosts] == ["allow", "deny", "allow"]
    assert NetworkPolicy().permission("a.test") is None


def test_a_managed_network_is_the_only_one_and_an_administrators_is_for_all() -> None:
    online, offline = Confinement(network=True), Confinement()
    gated = Confinement(has_gate=True)

    assert NetworkPolicy().narrow(online) == gated
    assert NetworkPolicy().narrow(offline) == offline
    assert NetworkPolicy(is_required=True).narrow(offline) == gated
    assert NetworkPolicy(is_required=True).narrow(UNRESTRICTED) == UNRESTRICTED


def test_socks_can_be_switched_off() -> None:
    policy = NetworkPolicy(has_socks=False)

    policy.check_use(Destination("a.test", 80, "http"), "POST", has_body=True)
    with pytest.raises(Blocked) as blocked:
        policy.check_use(Destination("a.test", 80, "socks5Tcp"))
    assert (blocked.value.reason, blocked.value.source) == ("method_not_allowed", "mode_guard")
