"""Host names and addresses: their canonical form, patterns over them, and which are local.

Hosts are checked in their canonical form, and connections go to canonical addresses only: a
spelling that other programs read differently cannot lead elsewhere.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias
from unicodedata import normalize
from urllib.parse import unquote

from treadle.sandbox.network.own_addresses import is_own

Address: TypeAlias = IPv4Address | IPv6Address

_NAME: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*(?<!-)")
# The last label of an address in decimal, octal or hexadecimal: no domain ends like this.
_NUMBER: Final = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")
_MAX_LENGTH: Final = 253
# With a percent sign for each byte. Longer ones are not decoded: IDNA takes seconds for 64 KiB.
_MAX_SPELLED: Final = 9 * _MAX_LENGTH

_UNICAST: Final = IPv6Network("2000::/3")
# Python 3.11 and 3.12 treat these as public.
_NOT_PUBLIC: Final = (IPv6Network("3fff::/20"), IPv6Network("2002::/16"), IPv6Network("2001::/32"))
_COMPATIBLE: Final = IPv6Network("::/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
_LOOPBACK: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
_ISATAP: Final = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")


def normal(host: str) -> str:
    """Return the canonical form of a host.

    Names are lower case, without a final dot and with IDNA applied. Addresses have the form of
    `ipaddress`, whatever their notation; an IPv4 address inside an IPv6 one that the kernel
    unwraps is written as IPv4.

    Raises:
        ValueError: the text is neither a name nor an address, or has a zone.
    """
    text = host[:_MAX_SPELLED].strip()
    try:
        text = unquote(text, errors="strict") if "%" in text else text
        if len(host) > _MAX_SPELLED or _length(text) > _MAX_LENGTH:
            raise ValueError(f"invalid host {host[:40]!r}: too long")
        is_bracketed = text.startswith("[") and text.endswith("]")
        text = text[1:-1] if is_bracketed else text
        # The codec also maps full-width digits and the dots of other scripts.
        text = (text if text.isascii() else text.encode("idna").decode()).lower().rstrip(".")
    except UnicodeError as error:
        raise ValueError(f"invalid host {host!r}") from error
    address = literal(text)
    if address is not None and (not is_bracketed or ":" in text):
        return str(address)
    is_name = len(text) <= _MAX_LENGTH and _NAME.fullmatch(text)
    if is_bracketed or not is_name or _NUMBER.fullmatch(text):
        raise ValueError(f"invalid host {host!r}")
    return text


def _length(text: str) -> int:
    """Return the length of a host after the IDNA step that expands characters."""
    return len((text if text.isascii() else normalize("NFKC", text)).strip("[]."))


def literal(host: str) -> Address | None:
    """Return the address that a lower-case host denotes, `None` for a name.

    A zone would name an interface of this machine: such an address is invalid.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return _short_form(host)
    if isinstance(address, IPv6Address):
        return None if address.scope_id else address.ipv4_mapped or address
    return address


def _short_form(host: str) -> IPv4Address | None:
    """Parse the IPv4 notations that resolvers still accept: `127.1`, `0x7f000001`, `0177.0.0.1`."""
    if not _NUMBER.fullmatch(host):
        return None
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def is_pattern(text: str) -> bool:
    """Return whether a text is a host, `*.` or `**.` before a name, or `*` for all hosts."""
    if text == "*":
        return True
    rest = text.removeprefix("**.").removeprefix("*.")
    try:
        host = normal(rest)
    except ValueError:
        return False
    # An address has no subdomains.
    return rest == text or literal(host) is None


def covers(pattern: str, host: str) -> bool:
    """Return whether a pattern covers a host: `*.` subdomains, `**.` the domain too, `*` all."""
    if pattern == "*":
        return True
    if pattern.startswith("**."):
        domain = normal(pattern[3:])
        return host == domain or host.endswith(f".{domain}")
    if pattern.startswith("*."):
        return host.endswith(f".{normal(pattern[2:])}")
    return host == normal(pattern)


def is_local_host(host: str) -> bool:
    """Return whether a canonical host is local by its spelling alone, without a lookup."""
    address = literal(host)
    if address is not None:
        return is_local(address) or is_own(address)
    return host == "localhost" or host.endswith(".localhost")


def is_local(address: Address) -> bool:
    """Return whether an address is outside the public network, even inside another one."""
    return any(not _is_public(each) for each in meanings(address))


def meanings(address: Address) -> Iterator[Address]:
    """Yield an address and those that it may lead to instead.

    A gateway may lead to the embedded IPv4 address; the zero address leads to loopback.
    """
    yield address
    if address.is_unspecified:
        yield from _LOOPBACK
    if isinstance(address, IPv4Address):
        return
    packed = address.packed
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    is_translated = address in _NAT64 or address in _LOCAL_NAT64
    if is_translated or address in _COMPATIBLE or packed[8:12] in _ISATAP:
        yield IPv4Address(packed[-4:])


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast
    if address in _NAT64:
        return True  # as public as the embedded address
    is_unicast = address in _UNICAST and not any(address in network for network in _NOT_PUBLIC)
    return is_unicast and address.is_global
