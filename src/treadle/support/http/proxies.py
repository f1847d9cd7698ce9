"""The proxies that the environment configures."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

from treadle.support.concurrency.imports import import_late
from treadle.support.http.address import Address, Origin
from treadle.support.http.errors import UnsendableRequest
from treadle.support.text.secrets import secrets_of_url

_SUFFIX: Final = "_proxy"


async def proxy_of(origin: Origin) -> Address | None:
    """Return the proxy for requests to a server, by `http_proxy`, `https_proxy` and `no_proxy`.

    Raises:
        UnsendableRequest: the address of the proxy is invalid.
    """
    # Other systems have settings outside the environment.
    if sys.platform == "linux" and not any(name.lower().endswith(_SUFFIX) for name in os.environ):
        return None
    await import_late("urllib.request")
    from urllib.request import getproxies, proxy_bypass

    url = getproxies().get(origin.scheme)
    if not url or proxy_bypass(origin.netloc):
        return None
    try:
        return Address.parse(url if "://" in url else f"http://{url}")
    except UnsendableRequest as error:
        raise UnsendableRequest(f"{origin.scheme}_proxy: {error}") from None


def secrets_of_proxies() -> Iterator[str]:
    """Yield the passwords of the proxies that the environment configures."""
    for name, url in os.environ.items():
        if name.lower().endswith(_SUFFIX):
            yield from secrets_of_url(url if "://" in url else f"http://{url}")
