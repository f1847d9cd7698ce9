"""Names and addresses of hosts: how they are spelled, what covers them, which are local."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")


def normal(host: str) -> str:
    """A host in its one spelling: lower case, without brackets and final dot.

    Raises:
        ValueError: it is no name and no address.
    """
    text = host.strip().lower()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    address = literal(text)
    if address is not None:
        return str(address)
    text = text.rstrip(".")
    if len(text) > 253 or ".." in text or not _NAME.fullmatch(text):
        raise ValueError(f"no host {host!r}")
    return text


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is given by, if it is given by one."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    # A zone names one of our interfaces, which is nobody else's business.
    return None if isinstance(address, IPv6Address) and address.scope_id else address


def is_pattern(text: str) -> bool:
    """Whether a text is a host, `*.` or `**.` before one, or `*` for all of them."""
    try:
        return text == "*" or bool(normal(text.removeprefix("**.").removeprefix("*.")))
    except ValueError:
        return False


def covers(pattern: str, host: str) -> bool:
    """Whether a pattern means a host: `*.` its subdomains, `**.` the domain too, `*` all."""
    if pattern == "*":
        return True
    if pattern.startswith("**."):
        domain = normal(pattern[3:])
        return host == domain or host.endswith(f".{domain}")
    if pattern.startswith("*."):
        return host.endswith(f".{normal(pattern[2:])}")
    return host == normal(pattern)


def is_local_name(host: str) -> bool:
    """Whether a host is by its spelling alone on this machine or in its neighbourhood."""
    address = literal(host)
    if address is not None:
        return is_local(address)
    return host == "localhost" or host.endswith(".localhost")


def is_local(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is not one of the public network, whatever it is wrapped in."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _TRANSLATED:
            inner = IPv4Address(address.packed[-4:])
        if inner is not None:
            return is_local(inner)
    return not address.is_global or address.is_multicast
