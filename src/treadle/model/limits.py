"""Rate limits as the Responses service reports them, in headers and in its stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.protocol.base import JsonValue


def limits_of_headers(headers: Mapping[str, str]) -> JsonValue:
    """A `RateLimitSnapshot` on the wire; what the headers do not say is null."""
    return _snapshot(
        limit_id=headers.get("x-codex-active-limit") or "codex",
        limit_name=headers.get("x-codex-limit-name"),
        primary=_window(lambda name: headers.get(f"x-codex-primary-{name.replace('_', '-')}")),
        secondary=_window(lambda name: headers.get(f"x-codex-secondary-{name.replace('_', '-')}")),
        credits=_credits(lambda name: headers.get(f"x-codex-credits-{name.replace('_', '-')}")),
        plan_type=headers.get("x-codex-plan-type"),
    )


def limits_of_event(event: JsonValue) -> JsonValue:
    """The same from a `codex.rate_limits` event."""
    limits = event.get("rate_limits")
    limits = limits if isinstance(limits, dict) else {}
    return _snapshot(
        limit_id=event.get("metered_limit_name") or event.get("limit_name") or "codex",
        limit_name=None,
        primary=_window((limits.get("primary") or {}).get),
        secondary=_window((limits.get("secondary") or {}).get),
        credits=_credits((event.get("credits") or {}).get),
        plan_type=event.get("plan_type"),
    )


def _snapshot(
    *,
    limit_id: JsonValue,
    limit_name: JsonValue,
    primary: JsonValue,
    secondary: JsonValue,
    credits: JsonValue,  # noqa: A002 - the wire's own word
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
        "planType": plan_type,
        "rateLimitReachedType": None,
    }


def _window(get: Callable[[str], JsonValue]) -> JsonValue:
    used = _whole(get("used_percent"))
    if used is None:
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
    return {"hasCredits": has_credits, "unlimited": unlimited, "balance": get("balance") or None}


def _whole(value: JsonValue) -> int | None:
    try:
        return None if value is None else round(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def _truth(value: JsonValue) -> bool | None:
    words = {"true": True, "1": True, "false": False, "0": False}
    return value if isinstance(value, bool) else words.get(str(value).lower())
