"""Logins in a browser: what the client and the browser of a test do."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.harness.threads import Client
from treadle.protocol.base import JsonValue

START, CANCEL, DONE = "account/login/start", "account/login/cancel", "account/login/completed"
BROWSER = {"type": "chatgpt"}
NOT_COMPLETED = "Login server error: Login was not completed"


class Page(NamedTuple):
    """What a browser gets."""

    status: int
    text: str


async def visit(url: str, method: str = "GET") -> Page:
    """Request a page as a browser does."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection("127.0.0.1", parts.port)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    try:
        writer.write(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = (await reader.read()).decode()
    finally:
        writer.close()
    return Page(int(answer.split(" ", 2)[1]), answer.partition("\r\n\r\n")[2])


async def begin(client: Client) -> JsonValue:
    """Start a login."""
    return await client.request(START, BROWSER)


async def end_of(client: Client) -> JsonValue:
    """Wait for the end of a login."""
    return (await client.until(DONE))[-1]["params"]


def completed(login: JsonValue, error: str | None = None) -> JsonValue:
    return {
        "loginId": login["loginId"],
        "success": error is None,
        "error": error,
        "onboardingEntrypoint": None,
    }
