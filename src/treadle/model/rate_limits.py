"""Reads the rate limits of the Responses service from headers and stream events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

from treadle.model.naming import MAX_NAME
from treadle.protocol.account import PlanType
from treadle.protocol.base import JsonValue


def limits_of_headers(headers: Mapping[str, str]) -> JsonValue:
    """Return a `RateLimitSnapshot` of the wire; missing values are null."""
    return _snapshot(
        limit_id=_text(headers.get("x-codex-active-limit")) or "codex",
        limit_name=_text(headers.get("x-codex-limit-name")),
        primary=_window(lambda name: headers.get(f"x-codex-primary-{name.replace('_', '-')}")),
        secondary=_window(lambda name: headers.get(f"x-codex-secondary-{name.replace('_', '-')}")),
        credits=_credits(lambda name: headers.get(f"x-codex-credits-{name.replace('_', '-')}")),
        plan_type=headers.get("x-codex-plan-type"),
    )


def limits_of_event(event: JsonValue) -> JsonValue:
    """Return the same from a `codex.rate_limits` event."""
    event = _table(event)
    limits = _table(event.get("rate_limits"))
    named = _text(event.get("metered_limit_name")) or _text(event.get("limit_name"))
    return _snapshot(
        limit_id=named or "codex",
        limit_name=None,
        primary=_window(_table(limits.get("primary")).get),
        secondary=_window(_table(limits.get("secondary")).get),
        credits=_credits(_table(event.get("credits")).get),
        plan_type=event.get("plan_type"),
    )


def _snapshot(
    *,
    limit_id: JsonValue,
    limit_name: JsonValue,
    primary: JsonValue,
    secondary: JsonValue,
    credits: JsonValue,  # noqa: A002 - the name on the wire
    plan_type: JsonValue,
) -> JsonValue:
    return {
        "limitId": limit_id,
        "limitName": limit_name,
        "normalModelSlug": None,
        "primary": primary,
        "secondary": secondary,
        "credits": credits,
        "individualLimit": None,
        "spendControlReached": None,
        "planType": _plan(plan_type),
        "rateLimitReachedType": None,
    }


def _window(get: Callable[[str], JsonValue]) -> JsonValue:
    used = _whole(get("used_percent"))
    if used is None or not -(2**31) <= used < 2**31:
        return None
    return {
        "usedPercent": used,
        "windowDurationMins": _whole(get("window_minutes")),
        "resetsAt": _whole(get("reset_at")),
    }


def _credits(get: Callable[[str], JsonValue]) -> JsonValue:
    has_credits, unlimited = _truth(get("has_credits")), _truth(get("unlimited"))
    if has_credits is None or unlimited is None:
        return None
    return {"hasCredits": has_credits, "unlimited": unlimited, "balance": _text(get("balance"))}


def _whole(value: JsonValue) -> int | None:
    try:
        whole = None if value is None else round(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return whole if whole is None or -(2**63) <= whole < 2**63 else None


def _plan(value: JsonValue) -> str | None:
    plan = _text(value)
    return plan if plan is None or plan in get_args(PlanType) else "unknown"


def _text(value: JsonValue) -> str | None:
    # Each text goes to every client of the server.
    return value if isinstance(value, str) and 0 < len(value) <= MAX_NAME else None


def _table(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _truth(value: JsonValue) -> bool | None:
    words = {"true": True, "1": True, "false": False, "0": False}
    return value if isinstance(value, bool) else words.get(str(value).lower())
