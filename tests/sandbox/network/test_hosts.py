"""Spellings of hosts, patterns over them, and what a list of them allows."""

from __future__ import annotations

import socket
from ipaddress import IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.sandbox.network.hosts import (
    covers,
    is_local,
    is_local_host,
    is_pattern,
    normal,
)
from treadle.sandbox.network.own_addresses import is_own
from treadle.sandbox.network.policy import Blocked, Destination, NetworkPolicy
from treadle.sandbox.policy import UNRESTRICTED, Confinement

LOOPBACK = [
    *("127.1", "127.0.1", "2130706433", "0x7f000001", "0X7F.1", "0177.0.0.1", "017700000001"),
    *("127.0.0.1.", "::ffff:127.0.0.1", "[::FFFF:7f00:1]", "%31%32%37.0.0.1", "127%2e0.0.1"),
    # Digits and dots of other scripts, which IDNA maps to ASCII.
    *("\uff11\uff12\uff17.0.0.1", "127\u30020\uff0e0\uff611", "\u2460\u2461\u2466.0.0.1"),
]


@pytest.mark.parametrize(
    ("raw_host", "host"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("_dmarc.a-b.example", "_dmarc.a-b.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("ex%61mple.com", "example.com"),
        *((spelling, "127.0.0.1") for spelling in LOOPBACK),
    ],
)
def test_a_host_has_one_spelling(raw_host: str, host: str) -> None:
    assert normal(raw_host) == host


@pytest.mark.parametrize(
    "raw_host",
    [
        *("", ".", "a b", "a..b", "a/b", "a@b", "a:80", "-a", "a%00", "a%zz", "\udcff"),
        *("a" * 64, "a." * 126 + "aa"),
        *("fe80::1%eth0", "fe80::1%25eth0", "[127.0.0.1]", "[a]", "256.0.0.1", "1.2.3.4.5", "0x"),
        *("127.0.0.08", "4294967296", "a.b.1", "a.0x7f"),
    ],
)
def test_an_invalid_host_is_refused(raw_host: str) -> None:
    with pytest.raises(ValueError, match="invalid host"):
        normal(raw_host)


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


@pytest.mark.parametrize(
    "text", ["", "*.", "a.*", "*a.test", "***.a", "http://a.test", "*.127.0.0.1", "**.1", "*.::1"]
)
def test_an_invalid_pattern_is_recognized(text: str) -> None:
    assert not is_pattern(text)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),  # noqa: S104 - an address to refuse
        *("::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *(
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2002:808:808::",
            "3fff::1",
            "fec0::1",
        ),
        *(
            "fd00:ec2::254",
            "::7f00:1",
            "2001:0:808:808::",
            "64:ff9b:1::808:808",
            "2606::5efe:a00:1",
        ),
    ],
)
def test_addresses_outside_the_public_network_are_local(address: str) -> None:
    assert is_local(ip_address(address))
    assert is_local_host(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_public_addresses_are_not_local(address: str) -> None:
    assert not is_local(ip_address(address))


@given(
    value=st.integers(0, 2**32 - 1),
    parts=st.integers(1, 4),
    bases=st.lists(st.sampled_from(["{}", "0{:o}", "0x{:x}", "0X{:X}", "000{:o}"]), min_size=4),
    dot=st.sampled_from(["", "."]),
)
def test_every_ipv4_spelling_that_the_resolver_accepts_has_one_form(
    value: int, parts: int, bases: list[str], dot: str
) -> None:
    packed = value.to_bytes(4, "big")
    numbers = [*packed[: parts - 1], int.from_bytes(packed[parts - 1 :], "big")]
    text = ".".join(base.format(number) for base, number in zip(bases, numbers, strict=False))
    addresses = socket.getaddrinfo(text, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)

    assert socket.inet_aton(text) == packed
    assert normal(f"{text}{dot}") == addresses[0][4][0] == str(ip_address(value))


@given(text=st.text("0123456789abcdefx.:", min_size=1, max_size=24) | st.ip_addresses().map(str))
def test_every_text_that_the_resolver_accepts_as_an_address_is_that_address(text: str) -> None:
    try:
        # As bytes: Python itself refuses some strings.
        host = text.encode()
        addresses = socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except OSError:
        return
    address = ip_address(addresses[0][4][0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None

    assert normal(text) == str(mapped or address)


def test_the_addresses_of_this_machine_are_known() -> None:
    assert is_own(ip_address("127.0.0.1"))
    assert not is_own(ip_address("192.0.2.1"))


def test_names_are_local_by_their_spelling_too() -> None:
    names = ["localhost", "a.localhost", "example.com", "localhost.example"]

    assert [is_local_host(name) for name in names] == [True, True, False, False]


def test_a_denial_wins_whatever_its_position() -> None:
    policy = NetworkPolicy(domains=(("*.a.test", "allow"), ("x.a.test", "deny"), ("*", "allow")))

    hosts = ["b.a.test", "x.a.test", "other.test"]
    assert [policy.permission(host) for host in hosts] == ["allow", "deny", "allow"]
    assert NetworkPolicy().permission("a.test") is None


def test_a_managed_network_is_exclusive_and_an_administrators_applies_to_all() -> None:
    online, offline = Confinement(network=True), Confinement()
    proxied = Confinement(has_proxy=True)

    assert NetworkPolicy().narrow(online) == proxied
    assert NetworkPolicy().narrow(offline) == offline
    assert NetworkPolicy(is_required=True).narrow(offline) == proxied
    assert NetworkPolicy(is_required=True).narrow(UNRESTRICTED) == UNRESTRICTED


def test_socks_can_be_turned_off() -> None:
    policy = NetworkPolicy(has_socks=False)

    policy.check_use(Destination("a.test", 80, "http"), "POST", has_body=True)
    with pytest.raises(Blocked) as blocked:
        policy.check_use(Destination("a.test", 80, "socks5Tcp"))
    assert (blocked.value.reason, blocked.value.source) == ("method_not_allowed", "mode_guard")
