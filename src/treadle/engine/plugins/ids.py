"""Names of plugins and marketplaces, which become parts of paths."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_NAME: Final = 128
_MARKETPLACE: Final = re.compile(r"[A-Za-z0-9_-]+")
_PLUGIN: Final = re.compile(r"[A-Za-z0-9._-]+")
_VERSION: Final = re.compile(r"[A-Za-z0-9._+-]+")


class BadPlugin(ValueError):
    """A plugin, a marketplace or the name of one is invalid; the message says why."""


class PluginId(NamedTuple):
    """The name of a plugin and that of its marketplace; both are safe parts of a path."""

    name: str
    marketplace: str

    def __str__(self) -> str:
        return f"{self.name}@{self.marketplace}"

    @classmethod
    def of(cls, name: str, marketplace: str) -> PluginId:
        """Return the id of a plugin.

        Raises:
            BadPlugin: one of the names cannot be a part of a path.
        """
        _check(name, "plugin name", _PLUGIN, "ASCII letters, digits, `.`, `_`, and `-`")
        check_marketplace(marketplace)
        return cls(name, marketplace)

    @classmethod
    def parse(cls, text: str) -> PluginId:
        """Read `name@marketplace`.

        Raises:
            BadPlugin: the text is not the id of a plugin.
        """
        name, at, marketplace = text.rpartition("@")
        if not at:
            raise BadPlugin(f"invalid plugin id {text[:200]!r}: expected `name@marketplace`")
        return cls.of(name, marketplace)


def check_marketplace(name: str) -> None:
    """Check the name of a marketplace.

    Raises:
        BadPlugin: it cannot be a part of a path.
    """
    _check(name, "marketplace name", _MARKETPLACE, "ASCII letters, digits, `_`, and `-`")


def check_version(version: str) -> None:
    """Check the version of a plugin.

    Raises:
        BadPlugin: it cannot be a part of a path.
    """
    allowed = "ASCII letters, digits, `.`, `+`, `_`, and `-`"
    _check(version, "plugin version", _VERSION, allowed)


def _check(text: str, what: str, pattern: re.Pattern[str], allowed: str) -> None:
    if not text:
        raise BadPlugin(f"invalid {what}: must not be empty")
    if text in (".", ".."):
        raise BadPlugin(f"invalid {what}: path traversal is not allowed")
    if not pattern.fullmatch(text):
        raise BadPlugin(f"invalid {what}: only {allowed} are allowed")
    if len(text) > MAX_NAME:
        raise BadPlugin(f"invalid {what}: exceeds {MAX_NAME} characters")
