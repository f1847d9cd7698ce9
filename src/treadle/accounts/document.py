"""The content of `auth.json`, in Codex's format: either program uses the other's logins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from treadle.accounts.tokens import Claims, InvalidToken, read_claims
from treadle.protocol.base import JsonValue
from treadle.support.text.json_text import is_nested_deeper

API_KEY: Final = "OPENAI_API_KEY"
MAX_BYTES: Final = 1024 * 1024
_CHATGPT: Final = "chatgpt"


class ManagedTokens(Struct, frozen=True):
    """The tokens of a ChatGPT login that the server renews itself."""

    id_token: str
    access_token: str
    refresh_token: str
    account_id: str | None = None

    def __repr__(self) -> str:
        return "ManagedTokens(...)"

    @property
    def claims(self) -> Claims:
        """What the identity token says, as far as it can be read."""
        try:
            return read_claims(self.id_token)
        except InvalidToken:
            return Claims()


class AuthDocument(Struct, frozen=True, kw_only=True):
    """A stored login: an API key, or the tokens of a ChatGPT login."""

    api_key: str | None = None
    tokens: ManagedTokens | None = None
    last_refresh: datetime | None = None
    # Every member as it was read, so that a change keeps those of other programs.
    members: dict[str, JsonValue] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return "AuthDocument(...)"

    def encode(self) -> bytes:
        """Return the document as Codex writes it."""
        is_key = self.tokens is None
        known: dict[str, JsonValue] = {
            "auth_mode": "apikey" if is_key else _CHATGPT,
            API_KEY: self.api_key,
        }
        if self.tokens is not None:
            known["tokens"] = msgspec.to_builtins(self.tokens)
        if self.last_refresh is not None:
            known["last_refresh"] = (
                self.last_refresh.astimezone(UTC).isoformat().replace("+00:00", "Z")
            )
        others = {name: self.members[name] for name in self.members if name not in _OWN}
        return msgspec.json.format(msgspec.json.encode({**known, **others}))


_OWN: Final = frozenset({"auth_mode", API_KEY, "tokens", "last_refresh"})


def decode(data: bytes) -> AuthDocument | None:
    """Read a stored login; `None` if it is damaged, or of a kind that this server cannot use."""
    if is_nested_deeper(data):
        return None
    try:
        members = msgspec.json.decode(data, type=dict[str, JsonValue])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    key = members.get(API_KEY)
    api_key = key if isinstance(key, str) and key else None
    # As upstream: without a mode, a key takes precedence.
    mode = members.get("auth_mode") or ("apikey" if api_key else _CHATGPT)
    if mode == "apikey" and api_key:
        return AuthDocument(api_key=api_key, members=members)
    tokens = _tokens(members.get("tokens"))
    if mode != _CHATGPT or tokens is None:
        return None
    refreshed = _time(members.get("last_refresh"))
    return AuthDocument(api_key=api_key, tokens=tokens, last_refresh=refreshed, members=members)


def _tokens(value: JsonValue) -> ManagedTokens | None:
    try:
        tokens = msgspec.convert(value, ManagedTokens)
    except msgspec.ValidationError:
        return None
    return tokens if tokens.access_token else None


def _time(value: JsonValue) -> datetime | None:
    try:
        moment = msgspec.convert(value, datetime)
        # Of the first and the last day, only some hours exist in every time zone.
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        return None
