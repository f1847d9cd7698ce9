"""Certificates that the environment names are read in a thread, and again only if they change."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import pytest

from tests.model.double import collect
from treadle.model.base import ModelError
from treadle.model.provider import ProviderConfig, build_model


class Context(ssl.SSLContext):
    """Accepts any file as certificates, and records which thread read it."""

    read: list[tuple[str, threading.Thread]]

    def load_verify_locations(self, cafile: object = None, *_others: object) -> None:
        content = Path(str(cafile)).read_text()
        self.read.append((content, threading.current_thread()))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, threading.Thread]]:
    """Provide the files that are read, with the threads that read them."""
    monkeypatch.setattr(Context, "read", [], raising=False)
    monkeypatch.setattr(ssl, "create_default_context", lambda: Context(ssl.PROTOCOL_TLS_CLIENT))
    return Context.read


async def ask_once(environ: dict[str, str]) -> None:
    """Send one request to a new provider, which is not there."""
    config = ProviderConfig(base_url="https://127.0.0.1:1")
    model = build_model("x", config, environ=environ)
    with pytest.raises(ModelError, match="no connection"):
        await collect(model)
    await model.close()


async def test_certificates_are_read_once_for_all_providers_and_off_the_event_loop(
    tmp_path: Path, read: list[tuple[str, threading.Thread]]
) -> None:
    file = tmp_path / "authorities.pem"
    file.write_text("one")
    for _ in range(3):
        await ask_once({"SSL_CERT_FILE": str(file)})

    assert [content for content, _ in read] == ["one"]
    assert read[0][1] is not threading.main_thread()


async def test_certificates_that_change_are_read_again(
    tmp_path: Path, read: list[tuple[str, threading.Thread]]
) -> None:
    file = tmp_path / "authorities.pem"
    for content in ("one", "other"):
        file.write_text(content)
        await ask_once({"SSL_CERT_FILE": str(file)})
    other = tmp_path / "others.pem"
    other.write_text("others")
    await ask_once({"CODEX_CA_CERTIFICATE": str(other), "SSL_CERT_FILE": str(file)})

    assert [content for content, _ in read] == ["one", "other", "others"]
