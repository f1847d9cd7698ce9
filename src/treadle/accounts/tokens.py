"""The claims of ChatGPT tokens: who they belong to and when they expire.

The claims are not verified: the services that receive the tokens do that.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, get_args

import msgspec
from msgspec import Struct

from treadle.protocol.account import PlanType
from treadle.support.text.json_text import is_nested_deeper

MAX_TOKEN: Final = 64 * 1024
"""Maximum number of characters of a token: it is a header of every request."""

# Names that the issuer uses, and their names in the protocol.
_PLANS: Final = {"education": "edu", "hc": "enterprise"}
_KNOWN_PLANS: Final = frozenset(get_args(PlanType))


class InvalidToken(ValueError):
    """A token is not a JWT."""

    def __init__(self) -> None:
        # Upstream's text: its clients show it.
        super().__init__("invalid ID token format")


class _Profile(Struct):
    email: str | None = None


class _Auth(Struct):
    chatgpt_plan_type: str | None = None
    chatgpt_user_id: str | None = None
    user_id: str | None = None
    chatgpt_account_id: str | None = None
    chatgpt_account_is_fedramp: bool = False


class _Claims(Struct):
    email: str | None = None
    exp: float | None = None
    profile: _Profile | None = msgspec.field(default=None, name="https://api.openai.com/profile")
    auth: _Auth | None = msgspec.field(default=None, name="https://api.openai.com/auth")


class Claims(Struct, frozen=True):
    """What a token says about its owner."""

    email: str | None = None
    plan: str | None = None
    user_id: str | None = None
    account_id: str | None = None
    # Seconds since the epoch.
    expires_at: float | None = None
    is_fedramp: bool = False


def read_claims(token: str) -> Claims:
    """Return the claims of a token.

    Raises:
        InvalidToken: it is not a JWT, or its claims are not of the expected types.
    """
    parts = token.split(".", 3) if len(token) <= MAX_TOKEN else []
    if len(parts) < 3 or not all(parts[:3]):
        raise InvalidToken
    try:
        payload = base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), b"-_", validate=True)
        if is_nested_deeper(payload):
            raise InvalidToken
        claims = msgspec.json.decode(payload, type=_Claims)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise InvalidToken from error
    profile, auth = claims.profile or _Profile(), claims.auth or _Auth()
    return Claims(
        email=claims.email or profile.email,
        plan=auth.chatgpt_plan_type,
        user_id=auth.chatgpt_user_id or auth.user_id,
        account_id=auth.chatgpt_account_id,
        expires_at=claims.exp,
        is_fedramp=auth.chatgpt_account_is_fedramp,
    )


def expiry_of(token: str) -> float | None:
    """Return when a token expires, `None` if it does not say so."""
    try:
        return read_claims(token).expires_at
    except InvalidToken:
        return None


def plan_of(name: str | None) -> PlanType:
    """Return the plan as the protocol names it."""
    lower = (name or "").lower()
    plan = _PLANS.get(lower, lower)
    return plan if plan in _KNOWN_PLANS else "unknown"  # type: ignore[return-value] # one of them
