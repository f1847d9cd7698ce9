"""Usage of an account: rate limits, credits, token totals."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.account import PlanType
from treadle.protocol.base import Int32, Int64, JsonValue, Params, Value
from treadle.protocol.thread import ThreadUsage


class CreditsSnapshot(Value, frozen=True):
    """The credits that an account can spend beyond its plan."""

    has_credits: bool
    unlimited: bool
    balance: str | None = None


RateLimitReachedType = Literal[
    "rate_limit_reached",
    "workspace_owner_credits_depleted",
    "workspace_member_credits_depleted",
    "workspace_owner_usage_limit_reached",
    "workspace_member_usage_limit_reached",
]


class RateLimitWindow(Value, frozen=True):
    """How much of one time window is used, and when the window resets."""

    used_percent: Int32
    # Unix seconds.
    resets_at: Int64 | None = None
    window_duration_mins: Int64 | None = None


class SpendControlLimitSnapshot(Value, frozen=True):
    """A spending limit set for one member, and the amount remaining."""

    limit: str
    remaining_percent: Int32
    resets_at: Int64
    used: str


class RateLimitSnapshot(Value, frozen=True):
    """The state of one of an account's limits."""

    credits: CreditsSnapshot | None = None
    individual_limit: SpendControlLimitSnapshot | None = None
    limit_id: str | None = None
    limit_name: str | None = None
    normal_model_slug: str | None = None
    plan_type: PlanType | None = None
    primary: RateLimitWindow | None = None
    rate_limit_reached_type: RateLimitReachedType | None = None
    secondary: RateLimitWindow | None = None
    spend_control_reached: bool | None = None


class AccountRateLimitsUpdatedNotification(Value, frozen=True):
    """New figures for a limit; a null is unknown and does not erase a known value."""

    rate_limits: RateLimitSnapshot


class AccountTokenUsageDailyBucket(Value, frozen=True):
    """The tokens used on one day."""

    start_date: str
    tokens: Int64


class AccountTokenUsageSummary(Value, frozen=True):
    """The account's totals and peak values."""

    current_streak_days: Int64 | None = None
    lifetime_tokens: Int64 | None = None
    longest_running_turn_sec: Int64 | None = None
    longest_streak_days: Int64 | None = None
    peak_daily_tokens: Int64 | None = None


AddCreditsNudgeCreditType = Literal["credits", "usage_limit"]

AddCreditsNudgeEmailStatus = Literal["sent", "cooldown_active"]

ConsumeAccountRateLimitResetCreditOutcome = Literal[
    "reset", "nothingToReset", "noCredit", "alreadyRedeemed"
]
"""`alreadyRedeemed` means that a request with the same key has already succeeded."""


class ConsumeAccountRateLimitResetCreditParams(Params, frozen=True):
    """Spend a credit to reset the limits; repeat the key when retrying."""

    idempotency_key: str
    credit_id: str | None = None


class ConsumeAccountRateLimitResetCreditResponse(Value, frozen=True):
    """Whether the limits were reset, or why they were not."""

    outcome: ConsumeAccountRateLimitResetCreditOutcome


class GetAccountRateLimitsParams(Params, frozen=True):
    """Read the state of the account's limits."""

    exclude_reset_credit_details: bool = False
    supports_luna_reserve: bool = False


RateLimitResetCreditStatus = Literal["available", "redeeming", "redeemed", "unknown"]

RateLimitResetType = Literal["codexRateLimits", "unknown"]


class RateLimitResetCredit(Value, frozen=True):
    """A right to reset the limits once, with its times in Unix seconds."""

    granted_at: Int64
    id: str
    reset_type: RateLimitResetType
    status: RateLimitResetCreditStatus
    description: str | None = None
    expires_at: Int64 | None = None
    title: str | None = None


class RateLimitResetCreditsSummary(Value, frozen=True):
    """How many resets the account has, and their details if they were fetched."""

    available_count: Int64
    # Null when not fetched; may be shorter than `available_count`.
    credits: list[RateLimitResetCredit] | None = None


class GetAccountRateLimitsResponse(Value, frozen=True):
    """The account's main limit, and every limit by its id."""

    rate_limits: RateLimitSnapshot
    account_id: str | None = None
    # Null is unknown: do not derive it from the percentages.
    ordinary_usage_allowed: bool | None = None
    rate_limit_reset_credits: RateLimitResetCreditsSummary | None = None
    rate_limit_upsell: JsonValue = None
    rate_limits_by_limit_id: dict[str, RateLimitSnapshot] | None = None


class GetAccountTokenUsageParams(Params, frozen=True):
    """Read the account's token totals, or the estimate for one thread."""

    thread_id: str | None = None


class GetAccountTokenUsageResponse(Value, frozen=True):
    """The totals, the totals by day, and the thread's estimate if requested."""

    summary: AccountTokenUsageSummary
    daily_usage_buckets: list[AccountTokenUsageDailyBucket] | None = None
    thread_usage: ThreadUsage | None = None


class SendAddCreditsNudgeEmailParams(Params, frozen=True):
    """Email the workspace's owner to request more credits or a higher limit."""

    credit_type: AddCreditsNudgeCreditType


class SendAddCreditsNudgeEmailResponse(Value, frozen=True):
    """Whether the email was sent, or suppressed because of a recent one."""

    status: AddCreditsNudgeEmailStatus
