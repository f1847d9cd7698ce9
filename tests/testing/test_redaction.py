"""What counts as a secret, and what does not."""

from __future__ import annotations

import pytest

from treadle.protocol.base import JsonValue
from treadle.testing.redaction import REDACTED, Redactor


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefghijklmnop",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJlLW9mLWl0",
        "ghp_abcdefghijklmnopqrstuvwxyz0123",
        "AKIAABCDEFGHIJKLMNOP",
        "xoxb-1234567890-abcdef",
    ],
)
def test_a_value_that_looks_like_a_key_is_redacted(secret: str) -> None:
    assert Redactor({}).text(f"it is {secret}.") == f"it is {REDACTED}."


@pytest.mark.parametrize(
    "harmless",
    [
        {"key": "Enter", "token": "Hello", "max_output_tokens": 5, "next_page_token": "p-2"},
        {"text": "sk-short, a task-list and disk-0123456789abcdef0123"},
        {"password": "", "authorization": None, "secret": 5},
    ],
)
def test_words_that_resemble_keys_are_kept(harmless: JsonValue) -> None:
    assert Redactor({}).value(harmless) == harmless


def test_values_with_secret_names_are_redacted_wherever_they_are() -> None:
    document = {"list": [{"apiKey": "a", "client_secret": "b", "accessToken": "c"}], "x": "y"}
    hidden = {"apiKey": REDACTED, "client_secret": REDACTED, "accessToken": REDACTED}
    assert Redactor({}).value(document) == {"list": [hidden], "x": "y"}


def test_values_of_the_environment_and_of_headers_are_redacted() -> None:
    redactor = Redactor({"MY_TOKEN": "correct-horse", "SHELL_KEY": "short", "LANG": "en_GB.UTF-8"})
    redactor.learn({"authorization": "Basic battery-staple", "accept": "text/event-stream"})
    text = "correct-horse battery-staple short en_GB.UTF-8 text/event-stream"
    assert redactor.text(text) == f"{REDACTED} {REDACTED} short en_GB.UTF-8 text/event-stream"


def test_an_event_without_secrets_stays_unchanged() -> None:
    events = ['event: x\r\ndata: {"a" : "\\ud83d"}\r\n\r\n', ": comment\n\n", "data: [DONE]\n\n"]
    assert Redactor({}).events(events) == events
