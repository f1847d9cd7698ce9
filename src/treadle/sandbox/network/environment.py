"""The environment variables by which programs find the egress proxy."""

from __future__ import annotations

from typing import Final

from treadle.sandbox.network.policy import NetworkPolicy
from treadle.sandbox.network.proxy import PORT

_OWN: Final = "localhost,127.0.0.1,::1"


def environment(policy: NetworkPolicy) -> dict[str, str]:
    """Return the proxy variables of a command; they replace those of the user."""
    # HTTP for all of them: some programs refuse to start with an unknown SOCKS proxy.
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), f"http://127.0.0.1:{PORT}")
    # Where local hosts are reachable at all, a program's own servers come first.
    proxies["NO_PROXY"] = _OWN if policy.allows_local else ""
    return {
        **proxies,
        **{name.lower(): value for name, value in proxies.items()},
        "NODE_USE_ENV_PROXY": "1",
        "CODEX_NETWORK_PROXY_ACTIVE": "1",
        "CODEX_NETWORK_ALLOW_LOCAL_BINDING": "1" if policy.allows_local else "0",
    }
