"""Rate limits of any shape become a notification that clients can read."""

from __future__ import annotations

import msgspec
import pytest

from treadle.model.rate_limits import limits_of_event, limits_of_headers
from treadle.protocol.account_usage import RateLimitSnapshot
from treadle.protocol.base import JsonValue


def snapshot(value: JsonValue) -> RateLimitSnapshot:
    return msgspec.convert(value, RateLimitSnapshot)


@pytest.mark.parametrize("odd", ["x", 5, [1], {"a": 1}, True, 1e300, -(2**63), None])
@pytest.mark.parametrize(
    "field",
    [
        "rate_limits",
        "primary",
        "used_percent",
        "window_minutes",
        "reset_at",
        "credits",
        "has_credits",
        "balance",
        "plan_type",
        "metered_limit_name",
    ],
)
def test_odd_values_in_an_event_are_omitted(field: str, odd: JsonValue) -> None:
    window = {"used_percent": 5, "window_minutes": 10, "reset_at": 7} | {field: odd}
    credit = {"has_credits": True, "unlimited": False, "balance": "3"} | {field: odd}
    event = {
        "rate_limits": {"primary": window, "secondary": window} | {field: odd},
        "credits": credit,
        "plan_type": "pro",
        "metered_limit_name": "m",
        field: odd,
    }

    assert isinstance(snapshot(limits_of_event(event)), RateLimitSnapshot)


def test_an_unlisted_plan_in_a_header_is_unknown() -> None:
    assert snapshot(limits_of_headers({"x-codex-plan-type": "gold"})).plan_type == "unknown"
