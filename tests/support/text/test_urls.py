"""Origins, redirect targets, and URLs and texts without secrets."""

from __future__ import annotations

import pytest

from treadle.support.text.urls import is_same_origin, origin_of, redirect_target, without_secrets


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://a.example/v1?x=1", "https://a.example"),
        ("https://A.example:443/v1", "https://a.example"),
        ("https://a.example./v1", "https://a.example"),
        ("http://a.example:443/", "http://a.example:443"),
        ("http://user:password@a.example:81/", "http://a.example:81"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
        ("http://a.example:port/", "an invalid URL"),
        ("http://[::1/", "an invalid URL"),
        ("/v1", "an invalid URL"),
        ("", "an invalid URL"),
    ],
)
def test_origin_names_scheme_host_and_port(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    ("location", "is_same"),
    [
        ("/v2", True),
        ("../v2", True),
        ("https://a.example/v2", True),
        ("https://a.example:443/v2", True),
        ("//a.example/v2", True),
        ("//b.example/v2", False),
        ("http://a.example/v2", False),
        ("https://a.example:444/v2", False),
        ("https://a.example@b.example/v2", False),
        ("https://a.example:x/v2", False),
    ],
)
def test_redirect_is_classified_by_its_origin(location: str, is_same: bool) -> None:
    target = redirect_target("https://a.example/v1", location)
    assert target is not None
    assert is_same_origin("https://a.example/v1", target) is is_same


@pytest.mark.parametrize("location", [None, "", "http://[::1"])
def test_redirect_without_a_usable_location_has_no_target(location: str | None) -> None:
    assert redirect_target("https://a.example/v1", location) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.example/v1", "https://a.example/v1"),
        ("https://user:pass@a.example:8443/v1?key=k#f", "https://a.example:8443/v1"),
        ("https://user:pass@[::1/v1", "an invalid URL"),
    ],
)
def test_shown_url_has_no_secrets(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
