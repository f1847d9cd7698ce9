"""A directory of apps that costs time and memory, and an address that others can read."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.attack.test_keys_in_errors import service
from treadle.model.provider import Bearer, no_credentials
from treadle.server.apps import backend as apps
from treadle.server.apps.backend import AppsBackend, AppsUnavailable


def answer(document: str) -> bytes:
    """Return an answer with a document."""
    head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len(document)}\r\n\r\n"
    return f"{head}{document}".encode()


def backend(url: str) -> AppsBackend:
    """Return the backend of a login that is not renewed."""
    return AppsBackend(url, Bearer("token"), {}, no_credentials)


async def test_a_page_with_too_many_parts_is_refused() -> None:
    """Each page of 4 MiB took two seconds of the event loop, for as long as the list may take."""
    document = json.dumps({"apps": [{}] * 110_000, "next_token": "x"})
    async with service(lambda _: answer(document)) as url:
        with pytest.raises(AppsUnavailable, match="something else than a JSON object"):
            await backend(url).directory()


async def test_entries_of_one_app_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "MAX_ENTRIES", 250)
    requests = 0

    def page(_request: str) -> bytes:
        nonlocal requests
        requests += 1
        entries = [{"id": "a", "description": str(number)} for number in range(100)]
        return answer(json.dumps({"apps": entries, "next_token": "x"}))

    async with service(page) as url:
        (app,) = await backend(url).directory()

    assert (app.description, requests) == ("49", 3)


async def test_a_list_is_limited_to_what_clients_can_receive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All apps are one message, which was several times larger than messages may be."""
    monkeypatch.setattr(apps, "MAX_LIST_BYTES", 25_000)

    def page(request: str) -> bytes:
        token = parse_qs(urlsplit(request.split()[1]).query).get("token", ["0"])[0]
        app = {"id": token, "labels": {"text": "x" * 10_000}}
        return answer(json.dumps({"apps": [app], "next_token": str(int(token) + 1)}))

    async with service(page) as url:
        found = await backend(url).directory()

    assert [each.id for each in found] == ["0", "1"]


async def test_a_login_is_not_sent_in_clear_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor to a proxy, if the address is on this machine."""
    requests: list[str] = []

    def note(request: str) -> bytes:
        requests.append(request)
        return answer("{}")

    async with service(note) as proxy, service(lambda _: answer("{}")) as url:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(AppsUnavailable, match="is not confidential"):
            await backend("http://backend.invalid").directory()
        assert await backend(url).directory() == []

    assert requests == []


@pytest.mark.parametrize("link", ["javascript:alert(1)", "file:///bin/sh", "//host/x", "vscode:x"])
async def test_links_that_a_client_must_not_open_are_left_out(link: str) -> None:
    """Clients open the page of an app, and load its icon."""
    app = {"id": "a", "logo_url": link, "icon_url_dark": link, "install_url": link}
    async with service(lambda _: answer(json.dumps({"apps": [app]}))) as url:
        (listed,) = await backend(url).directory()
        (read,) = await backend(url).details(["a"], with_tools=False)

    assert (listed.logo_url, read.icon_url, read.icon_url_dark) == (None, None, None)
    assert read.install_url == "https://chatgpt.com/apps/a/a"


async def test_icons_may_be_pictures_in_the_answer() -> None:
    app = {"id": "a", "logo_url": "data:image/png;base64,AAAA", "logo_url_dark": "HTTPS://host/x"}
    async with service(lambda _: answer(json.dumps({"apps": [app]}))) as url:
        (listed,) = await backend(url).directory()

    assert (listed.logo_url, listed.logo_url_dark) == (app["logo_url"], app["logo_url_dark"])
