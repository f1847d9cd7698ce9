"""Secrets are removed from texts in every usual spelling, and ordinary words stay."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote

import pytest

from treadle.support.text import secrets as module
from treadle.support.text.secrets import (
    Secrets,
    secrets_of_headers,
    secrets_of_parameters,
    secrets_of_url,
)

KEY = 'sk-Aa/+"é\\Zz9 end'


@pytest.mark.parametrize(
    "shown",
    [
        KEY,
        KEY.lower(),
        KEY.upper().replace("É", "é"),
        quote(KEY),
        quote(KEY, safe="").lower(),
        json.dumps(KEY)[1:-1],
        repr(KEY.encode())[2:-1],
        *(base64.b64encode((before + KEY + "!?").encode()).decode() for before in ("", "u", "u:")),
        base64.urlsafe_b64encode(f"user:{KEY}".encode()).decode(),
    ],
)
def test_each_spelling_is_removed(shown: str) -> None:
    redacted = Secrets([KEY]).redact(f"<{shown}>")
    assert "[redacted]" in redacted
    # Base64 characters that encode a part of a neighbouring byte may stay.
    assert len(redacted.replace("[redacted]", "")) <= 14


ESCAPED = "sk-secret-abcdef/0123+xyz"


@pytest.mark.parametrize(
    "shown",
    [
        ESCAPED.replace("/", "\\/"),
        ESCAPED.replace("+", "\\u002B"),
        ESCAPED.replace("/", "\\x2f"),
        ESCAPED.replace("/", "&#x2F;").replace("+", "&#43;"),
        "".join(f"%{byte:02X}" for byte in ESCAPED.encode()),
        "".join(f"\\u{byte:04x}" for byte in ESCAPED.encode()),
        quote(quote(ESCAPED, safe="")),
        json.dumps(json.dumps(ESCAPED.replace("/", "\\/"))),
        base64.b64encode(ESCAPED.encode()).decode().replace("/", "\\/").replace("=", "%3D"),
    ],
)
def test_a_secret_is_removed_whichever_of_its_characters_are_escaped(shown: str) -> None:
    redacted = Secrets([ESCAPED]).redact(f"é %41 <{shown}> &amp; é")
    assert (redacted[:7], redacted[-9:]) == ("é %41 <", "> &amp; é")
    assert redacted[7:-9].strip('"\\').removesuffix("g%3D%3D") == "[redacted]"


LONG = "sk-proj-Zx9_Qw7Er5+Ty3/Ui1=Op0As8Df6Gh4Jk2Lz-Xc0Vb8Nm6Qw4Er2Ty0Ui8Op6As4Df2Gh0"


@pytest.mark.parametrize(
    "shown",
    [
        "".join(f"\\{byte:03o}" for byte in LONG.encode()),
        "".join(f"\\u{{{byte:x}}}" for byte in LONG.encode()),
        "".join(f"\\U{byte:08x}" for byte in LONG.encode()),
        "".join(f"&#{byte}" for byte in LONG.encode()),
        "".join(f"&#x{byte:07x};" for byte in LONG.encode()),
        "".join(f"&#{byte:09d}" for byte in LONG.encode()),
        re.escape(LONG),
        LONG.replace("_", "&lowbar;").replace("+", "&plus;").replace("/", "&sol;"),
        LONG[:40] + "\\\n" + LONG[40:],
        base64.encodebytes(LONG.encode()).decode().strip().rstrip("="),
        json.dumps(base64.encodebytes(LONG.encode()).decode())[1:-1].rstrip("=\\n"),
        base64.encodebytes(LONG.encode()).decode().replace("\n", "\r\n  ").strip().rstrip("="),
    ],
)
def test_a_long_secret_is_removed_in_rarer_escapes_and_over_several_lines(shown: str) -> None:
    """Octal escapes, HTML without semicolons and base64 of 76 columns reached the rollout."""
    for text in (shown, f"<{shown}>"):
        redacted = Secrets([LONG]).redact(text).strip("<>")
        assert redacted.startswith("[redacted]")
        # Base64 characters that encode a part of a neighbouring byte may stay.
        assert len(redacted.removeprefix("[redacted]")) <= 1


@pytest.mark.parametrize("change", [str.upper, str.lower, str.swapcase, html.escape])
@pytest.mark.parametrize("secret", ["Schlüssel-gehÄim-77", "Ключ-от-Двери"])
def test_a_secret_with_other_letters_is_removed_in_each_case(
    secret: str, change: Callable[[str], str]
) -> None:
    assert Secrets([secret]).redact(f"<{change(secret)}>") == "<[redacted]>"


@pytest.mark.parametrize("change", [str, str.upper, str.lower])
def test_a_secret_whose_bytes_are_taken_for_latin_letters_is_removed(
    change: Callable[[str], str],
) -> None:
    """Some services read headers so, and quote them in JSON."""
    secret = "Schlüssel-gehÄim-77"
    shown = change(secret).encode().decode("latin-1")
    assert Secrets([secret]).redact(f"<{shown}>") == "<[redacted]>"


def test_named_letters_of_html_are_read() -> None:
    shown = "Schl&uuml;ssel-geh&Auml;im-77"
    assert Secrets(["Schlüssel-gehÄim-77"]).redact(shown) == "[redacted]"


def test_blanks_of_a_secret_may_be_shown_as_in_forms_and_html() -> None:
    secrets = Secrets(["alpha beta! gamma"])
    for shown in ("alpha+beta!+gamma", "alpha&nbsp;beta!&nbsp;gamma", "alpha\\ beta!\\ gamma"):
        assert secrets.redact(shown) == "[redacted]"


def test_truncation_leaves_no_part_of_an_escaped_secret() -> None:
    shown = "".join(f"\\u{byte:04x}" for byte in b"0123456789abcdef")
    redacted = Secrets(["0123456789abcdef"]).redact("x" * 90 + shown, limit=170)
    assert "u0030" not in redacted


def test_a_text_of_nothing_but_escapes_is_searched_in_linear_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    find = module.find_ranges

    def measured(text: bytes, forms: Iterable[bytes]) -> list[tuple[int, int]]:
        seen.append(len(text))
        return find(text, forms)

    monkeypatch.setattr(module, "find_ranges", measured)
    text = "%2525252541" * 10_000
    assert Secrets([ESCAPED]).redact(text, limit=None) == text
    assert len(seen) <= 4
    assert sum(seen) <= 4 * (len(text) + 1)


@pytest.mark.parametrize("secret", ["", "a", "key", "12345"])
def test_short_value_does_not_mutilate_a_text(secret: str) -> None:
    text = "a key of 12345 bytes"
    assert Secrets([secret]).redact(text) == text


def test_text_around_a_secret_stays_unchanged() -> None:
    text = "İ \ud83d Ä secret-1SECRET-12 end"
    assert Secrets(["secret-1", "secret-12"]).redact(text).endswith("[redacted][redacted] end")


def test_truncation_leaves_no_part_of_a_secret() -> None:
    secret = "0123456789abcdef"
    redacted = Secrets([secret]).redact("x" * 90 + secret, limit=100)
    assert "0123" not in redacted


@pytest.mark.parametrize(
    "shown",
    [
        ESCAPED,
        "".join(f"%{byte:02X}" for byte in ESCAPED.encode()),
        "".join(f"\\u{byte:04x}" for byte in ESCAPED.encode()),
        "".join(f"&#x{byte:02x};" for byte in ESCAPED.encode()),
        quote("".join(f"%{byte:02X}" for byte in ESCAPED.encode())),
        "".join(f"\\{byte:03o}" for byte in ESCAPED.encode()),
        "".join(f"\\u{{{byte:x}}}" for byte in ESCAPED.encode()),
        "".join(f"\\U{byte:08x}" for byte in ESCAPED.encode()),
    ],
)
def test_a_part_of_a_secret_at_the_end_of_an_incomplete_text_is_replaced(shown: str) -> None:
    secrets = Secrets([ESCAPED])
    for end in range(4 * len(shown) // len(ESCAPED), len(shown) + 1):
        redacted = secrets.redact(f"bad key: {shown[:end]}", is_cut=True)
        assert redacted == "bad key: [redacted]", end


def test_a_part_of_a_secret_that_a_cut_leaves_in_html_without_semicolons_is_replaced() -> None:
    shown = "".join(f"&#{byte}" for byte in ESCAPED.encode())
    for end in range(len("&#115" * 5), len(shown) + 1):
        redacted = Secrets([ESCAPED]).redact(f"bad key: {shown[:end]}", is_cut=True)
        assert redacted == "bad key: [redacted]", end


def test_an_incomplete_text_without_a_secret_stays() -> None:
    assert Secrets([ESCAPED]).redact("no models", is_cut=True) == "no models"


def test_newest_secrets_are_kept() -> None:
    secrets = Secrets(["the-configured-key"])
    for number in range(300):
        secrets.add(["the-configured-key", f"renewed-token-{number}."])
    shown = secrets.redact("the-configured-key renewed-token-299. renewed-token-1.")
    assert shown == "[redacted] [redacted] renewed-token-1."


def test_all_secrets_of_a_request_with_many_headers_are_kept() -> None:
    values = [f"secret-number-{number}." for number in range(100)]
    shown = Secrets(values).redact(" ".join(values))
    assert shown == " ".join(["[redacted]"] * 100)


def test_secrets_of_a_request_are_found() -> None:
    basic = base64.b64encode(b"me:the-password").decode()
    headers = {
        "Authorization": f"Basic {basic}",
        "x-api-key": "the-key",
        "cookie": "a=cookie-one; b=cookie-two",
        "anthropic-version": "2023-06-01",
        "accept": "application/json",
    }
    found = set(secrets_of_headers(headers))
    assert found >= {basic, "the-password", "the-key", "cookie-one", "cookie-two"}
    assert found.isdisjoint({"2023-06-01", "application/json"})
    assert list(secrets_of_parameters([("code", "c"), ("api-version", "1")])) == ["c"]
    assert set(secrets_of_url("http://u:p%40ss@host/?k=v")) >= {"p@ss", "v"}
    assert list(secrets_of_url("http://[")) == []
