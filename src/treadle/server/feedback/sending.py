"""Sends a report to the configured endpoint."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from treadle.model.http.tls import tls_context
from treadle.support.http.client import HttpClient
from treadle.support.http.errors import HttpError
from treadle.support.text.urls import origin_of

SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 10.0


class NotSent(Exception):
    """The endpoint cannot be reached, or did not accept the report."""


async def send(path: Path, endpoint: str) -> None:
    """Send a report as the body of a POST request; redirects are not followed.

    Raises:
        NotSent: it did not arrive.
        OSError: the report cannot be read.
    """
    body = await asyncio.to_thread(path.read_bytes)
    where = origin_of(endpoint)
    client = HttpClient(connect_seconds=_CONNECT_SECONDS, context=await tls_context(os.environ))
    try:
        async with asyncio.timeout(SECONDS):
            response = await client.request(
                "POST", endpoint, headers={"Content-Type": "application/zip"}, body=body
            )
    except TimeoutError as error:
        raise NotSent(f"{where} did not answer within {SECONDS:g} s") from error
    except (HttpError, OSError) as error:
        raise NotSent(f"{where} cannot be reached") from error
    finally:
        client.close()
    if not 200 <= response.status < 300:
        raise NotSent(f"{where} answered {response.status}")
