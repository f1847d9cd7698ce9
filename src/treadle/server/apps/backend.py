"""Requests about apps to the backend of a ChatGPT account, at the configured address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from treadle.accounts.settings import is_confidential
from treadle.model.http.sse import is_excessive
from treadle.model.http.tls import tls_context
from treadle.model.provider import Bearer, CredentialsRejected
from treadle.protocol.app import (
    AppBranding,
    AppInfo,
    AppMetadata,
    AppToolSummary,
    ConnectorMetadata,
)
from treadle.protocol.base import JsonValue
from treadle.support.http.client import HttpClient
from treadle.support.http.errors import HttpError
from treadle.support.text.urls import origin_of, web_link

REQUEST_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10.0
MAX_BYTES: Final = 4 * 1024 * 1024
"""The maximum size of one answer."""

MAX_PAGES: Final = 50
MAX_APPS: Final = 5_000
MAX_ENTRIES: Final = 20_000
"""The maximum number of entries that are examined: those of one app are joined, some are hidden."""

MAX_LIST_BYTES: Final = 16 * 1024 * 1024
"""The maximum size of all pages: clients receive the list as one message."""

_ENTRIES_PER_STEP: Final = 100
MAX_TEXT: Final = 4096
LIST: Final = "/connectors/directory/list?external_logos=true"
BATCH: Final = "/ps/apps/batch"
SERVER_PATH: Final = "/ps/mcp"
"""The path of the MCP server with the tools of connected apps."""

_UNAUTHORIZED: Final = 401

Login: TypeAlias = Callable[[Bearer | None], Awaitable[Bearer | None]]
"""Returns the login with ChatGPT; after a rejection a new one, if there is any."""

T = TypeVar("T", bound=msgspec.Struct)

logger = logging.getLogger(__name__)


class AppsUnavailable(Exception):
    """The backend refuses, does not answer, or answers something else; no secret is quoted."""


class _LoginRejected(AppsUnavailable):
    """The backend does not accept the login, which may have expired."""


class AppsBackend:
    """The backend with the login of one account, which may be renewed."""

    def __init__(
        self, base_url: str, login: Bearer, environ: Mapping[str, str], renew: Login
    ) -> None:
        self.base_url: Final = base_url.rstrip("/")
        self.login = login
        self._environ = environ
        self._renew = renew

    def check(self) -> None:
        """Check that the backend may receive the login.

        Raises:
            AppsUnavailable: others could read it on the way.
        """
        if not is_confidential(self.base_url):
            where = origin_of(self.base_url)
            raise AppsUnavailable(f"{where} is not confidential: expected https, or this machine")

    async def login_for(self, rejected: Bearer | None) -> Bearer | None:
        """Return the login; after a rejection a new one of the same account, if there is any."""
        if rejected is None:
            return self.login
        try:
            renewed = await self._renew(rejected)
        except CredentialsRejected as error:
            logger.warning("login of apps not renewed", extra={"reason": str(error)})
            return None
        if renewed is None or renewed.account_id != self.login.account_id:
            return None
        self.login = renewed
        return renewed

    async def directory(self) -> list[AppInfo]:
        """Return the apps of the directory, which hides some, by name.

        Raises:
            AppsUnavailable: a page cannot be read.
        """
        found: dict[str, AppInfo] = {}
        token, examined, size = "", 0, 0
        for _ in range(MAX_PAGES):
            path = f"{LIST}&token={quote(token, safe='')}" if token else LIST
            document = await self._fetch("GET", path)
            size += len(document)
            if size > MAX_LIST_BYTES:
                break
            page = self._decode(document)
            for entry in _entries(page)[: MAX_ENTRIES - examined]:
                examined += 1
                if not examined % _ENTRIES_PER_STEP:
                    await asyncio.sleep(0)
                app = _app(entry)
                if app is not None and len(found) < MAX_APPS:
                    found[app.id] = _merged(found[app.id], app) if app.id in found else app
            token = _text(page, "next_token", "nextToken") or ""
            if not token or examined >= MAX_ENTRIES or len(found) >= MAX_APPS:
                break
        return list(found.values())

    async def details(self, ids: Sequence[str], *, with_tools: bool) -> list[ConnectorMetadata]:
        """Return what the backend knows of some apps.

        Raises:
            AppsUnavailable: they cannot be read.
        """
        body: JsonValue = {"app_ids": [*ids], "include_tools": with_tools}
        answer = self._decode(await self._fetch("POST", BATCH, body))
        entries = _entries(answer)[:MAX_ENTRIES]
        found = [_details(entry, with_tools=with_tools) for entry in entries]
        return [each for each in found if each is not None]

    async def _fetch(self, method: str, path: str, body: JsonValue = None) -> bytes:
        login = self.login
        try:
            return await self._send(method, path, body, login)
        except _LoginRejected:
            renewed = await self.login_for(login)
            if renewed is None or renewed.token == login.token:
                raise
            return await self._send(method, path, body, renewed)

    async def _send(self, method: str, path: str, body: JsonValue, login: Bearer) -> bytes:
        self.check()
        where = origin_of(self.base_url)
        client = HttpClient(
            connect_seconds=CONNECT_SECONDS,
            # Requests within this machine carry the login in clear text.
            uses_proxies=self.base_url.startswith("https:"),
            context=await tls_context(self._environ),
        )
        headers = {**_headers(login), "Content-Type": "application/json", "Accept": "*/*"}
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                url = f"{self.base_url}{path}"
                async with await client.request(method, url, headers=headers, body=data) as answer:
                    document = bytearray()
                    while piece := await answer.read():
                        document += piece
                        if len(document) > MAX_BYTES:
                            raise AppsUnavailable(f"{where} sent more than {MAX_BYTES} bytes")
        except TimeoutError as error:
            message = f"{where} did not answer within {REQUEST_SECONDS:g} s"
            raise AppsUnavailable(message) from error
        except (HttpError, OSError) as error:
            raise AppsUnavailable(f"{where} cannot be reached") from error
        finally:
            client.close()
        if not 200 <= answer.status < 300:
            kind = _LoginRejected if answer.status == _UNAUTHORIZED else AppsUnavailable
            raise kind(f"{where} answered with status {answer.status}")
        return bytes(document)

    def _decode(self, document: bytes) -> dict[str, JsonValue]:
        where = origin_of(self.base_url)
        if not is_excessive(document):
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                found: JsonValue = msgspec.json.decode(document)
                if isinstance(found, dict):
                    return found
        raise AppsUnavailable(f"{where} answered something else than a JSON object")


def _headers(login: Bearer) -> dict[str, str]:
    """Return the headers that carry a login."""
    account = {"chatgpt-account-id": login.account_id} if login.account_id else {}
    return {"Authorization": f"Bearer {login.token}", **account}


def _entries(document: dict[str, JsonValue]) -> list[dict[str, JsonValue]]:
    apps = document.get("apps")
    return [each for each in apps if isinstance(each, dict)] if isinstance(apps, list) else []


def _text(table: dict[str, JsonValue], *names: str) -> str | None:
    """Return the first text with one of these names; blank ones do not count."""
    values = (table.get(name) for name in names)
    texts = (value.strip()[:MAX_TEXT] for value in values if isinstance(value, str))
    return next((text for text in texts if text), None)


def _image(table: dict[str, JsonValue], *names: str) -> str | None:
    return web_link(_text(table, *names), "data:image/", "connectors://")


def _app(table: dict[str, JsonValue]) -> AppInfo | None:
    app_id = _text(table, "id")
    if app_id is None or table.get("visibility") == "HIDDEN":
        return None
    name = _text(table, "name") or app_id
    labels = table.get("labels")
    return AppInfo(
        id=app_id,
        name=name,
        app_metadata=_part(table, AppMetadata, "app_metadata", "appMetadata"),
        branding=_part(table, AppBranding, "branding"),
        description=_text(table, "description"),
        distribution_channel=_text(table, "distribution_channel", "distributionChannel"),
        install_url=install_url(name, app_id),
        labels={key: value for key, value in labels.items() if isinstance(value, str)}
        if isinstance(labels, dict)
        else None,
        logo_url=_image(table, "logo_url", "logoUrl"),
        logo_url_dark=_image(table, "logo_url_dark", "logoUrlDark"),
    )


def _part(table: dict[str, JsonValue], kind: type[T], *names: str) -> T | None:
    for name in names:
        if table.get(name) is not None:
            with suppress(msgspec.ValidationError):
                return msgspec.convert(table[name], kind)
    return None


def _merged(first: AppInfo, second: AppInfo) -> AppInfo:
    """Join two entries of one app: the description of the second counts, else the first one."""
    missing: dict[str, Any] = {
        name: getattr(second, name)
        for name in first.__struct_fields__
        if getattr(first, name) is None
    }
    if second.description is not None:
        missing["description"] = second.description
    return msgspec.structs.replace(first, **missing)


def install_url(name: str, app_id: str) -> str:
    """Return the page on which a user connects an app."""
    slug = "".join(each.lower() if each.isascii() and each.isalnum() else "-" for each in name)
    return f"https://chatgpt.com/apps/{slug.strip('-') or 'app'}/{quote(app_id, safe='')}"


def _details(table: dict[str, JsonValue], *, with_tools: bool) -> ConnectorMetadata | None:
    app_id = _text(table, "id")
    if app_id is None:
        return None
    name = _text(table, "name") or app_id
    tools = table.get("tool_summaries") or table.get("tools")
    return ConnectorMetadata(
        id=app_id,
        name=name,
        description=_text(table, "description"),
        distribution_channel=_text(table, "distribution_channel", "distributionChannel"),
        icon_url=_image(table, "icon_url", "iconUrl", "logo_url"),
        icon_url_dark=_image(table, "icon_url_dark", "iconUrlDark", "logo_url_dark"),
        install_url=web_link(_text(table, "install_url", "installUrl"))
        or install_url(name, app_id),
        tool_summaries=_tools(tools) if with_tools and isinstance(tools, list) else None,
    )


def _tools(entries: list[JsonValue]) -> list[AppToolSummary]:
    return [
        AppToolSummary(
            description=_text(each, "description") or "",
            name=name,
            is_read_only=(each.get("is_read_only") or each.get("isReadOnly")) is True,
            title=_text(each, "title"),
        )
        for each in entries[:MAX_APPS]
        if isinstance(each, dict) and (name := _text(each, "name")) is not None
    ]
