"""Converts an account's limits, token usage and messages for the protocol; redeems credits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal, get_args

from msgspec import Struct

from treadle.accounts.backend import AccountService, BackendError
from treadle.accounts.tokens import plan_of
from treadle.protocol.account import (
    GetWorkspaceMessagesResponse,
    PlanType,
    WorkspaceMessage,
    WorkspaceMessageType,
)
from treadle.protocol.account_usage import (
    AccountTokenUsageDailyBucket,
    AccountTokenUsageSummary,
    CreditsSnapshot,
    GetAccountRateLimitsResponse,
    GetAccountTokenUsageResponse,
    RateLimitReachedType,
    RateLimitResetCredit,
    RateLimitResetCreditsSummary,
    RateLimitResetCreditStatus,
    RateLimitSnapshot,
    RateLimitWindow,
    SpendControlLimitSnapshot,
)
from treadle.protocol.base import Int32, Int64, JsonValue

MAX_ENTRIES: Final = 100
"""Maximum number of messages, limits and credits that are passed on."""
MAX_DAYS: Final = 366
"""Maximum number of days with their tokens that are passed on: the newest ones, a year of them."""

_MAIN_LIMIT_ID: Final = "codex"
_NOT_FOUND: Final = 404


class _Window(Struct):
    used_percent: Int32
    limit_window_seconds: Int64 = 0
    reset_at: Int64 | None = None


class _Limit(Struct):
    primary_window: _Window | None = None
    secondary_window: _Window | None = None


class _Credits(Struct):
    has_credits: bool = False
    unlimited: bool = False
    balance: str | None = None


class _OtherLimit(Struct):
    metered_feature: str
    limit_name: str
    rate_limit: _Limit | None = None
    normal_model_slug: str | None = None


class _ReachedType(Struct):
    type: str


class _IndividualLimit(Struct):
    limit: str
    used: str
    used_percent: Int32 = 0
    remaining_percent: Int32 | None = None
    reset_at: Int64 = 0


class _SpendControl(Struct):
    reached: bool | None = None
    individual_limit: _IndividualLimit | None = None


class _ResetCredits(Struct):
    available_count: Int64 = 0


class _UsageDocument(Struct):
    plan_type: str
    rate_limit: _Limit | None = None
    credits: _Credits | None = None
    additional_rate_limits: list[_OtherLimit] | None = None
    rate_limit_reached_type: _ReachedType | None = None
    rate_limit_reset_credits: _ResetCredits | None = None
    spend_control: _SpendControl | None = None
    account_id: str | None = None


class _ResetCredit(Struct):
    id: str
    granted_at: datetime
    reset_type: str = ""
    status: str = ""
    expires_at: datetime | None = None
    title: str | None = None
    description: str | None = None


class _ResetCreditDetails(Struct):
    available_count: Int64
    credits: list[_ResetCredit] = []


class _Day(Struct):
    start_date: str
    tokens: Int64


class _Stats(Struct):
    lifetime_tokens: Int64 | None = None
    peak_daily_tokens: Int64 | None = None
    longest_running_turn_sec: Int64 | None = None
    current_streak_days: Int64 | None = None
    longest_streak_days: Int64 | None = None
    daily_usage_buckets: list[_Day] | None = None


class _Profile(Struct):
    stats: _Stats


class _Message(Struct):
    message_id: str
    message_body: str
    message_type: str = ""
    created_at: datetime | None = None
    archived_at: datetime | None = None


class _Messages(Struct):
    messages: list[_Message] = []


class _Redeemed(Struct):
    code: Literal["reset", "nothing_to_reset", "no_credit", "already_redeemed"]


async def read_rate_limits(
    backend: AccountService, *, with_credits: bool
) -> GetAccountRateLimitsResponse:
    """Return the limits of the account.

    Raises:
        BackendError: they cannot be read.
        CredentialsRejected: the login was rejected and cannot be renewed.
    """
    status = await backend.get("usage", _UsageDocument)
    credits_ = await _reset_credits(backend) if with_credits else None
    if credits_ is None and status.rate_limit_reset_credits is not None:
        count = status.rate_limit_reset_credits.available_count
        credits_ = RateLimitResetCreditsSummary(available_count=count)
    plan = plan_of(status.plan_type)
    main = _main_limit(status, plan)
    others = [_other_limit(each, plan) for each in (status.additional_rate_limits or ())]
    limits = {str(each.limit_id): each for each in (main, *others[:MAX_ENTRIES])}
    return GetAccountRateLimitsResponse(
        rate_limits=limits[_MAIN_LIMIT_ID],
        rate_limits_by_limit_id=limits,
        rate_limit_reset_credits=credits_,
        account_id=status.account_id,
    )


async def _reset_credits(backend: AccountService) -> RateLimitResetCreditsSummary | None:
    try:
        details = await backend.get("rate-limit-reset-credits", _ResetCreditDetails)
    except BackendError:
        return None  # as upstream: the limits are reported even without them
    shown = [_reset_credit(each) for each in details.credits[:MAX_ENTRIES]]
    return RateLimitResetCreditsSummary(available_count=details.available_count, credits=shown)


def _reset_credit(credit: _ResetCredit) -> RateLimitResetCredit:
    known: tuple[RateLimitResetCreditStatus, ...] = get_args(RateLimitResetCreditStatus)
    status: RateLimitResetCreditStatus = "unknown"
    status = next((each for each in known if each == credit.status), status)
    return RateLimitResetCredit(
        granted_at=_timestamp(credit.granted_at),
        id=credit.id,
        reset_type="codexRateLimits" if credit.reset_type == "codex_rate_limits" else "unknown",
        status=status,
        description=credit.description,
        expires_at=_seconds(credit.expires_at),
        title=credit.title,
    )


def _main_limit(status: _UsageDocument, plan: PlanType) -> RateLimitSnapshot:
    control = status.spend_control or _SpendControl()
    reached: tuple[RateLimitReachedType, ...] = get_args(RateLimitReachedType)
    kind = status.rate_limit_reached_type and status.rate_limit_reached_type.type
    limit = status.rate_limit or _Limit()
    credits_ = status.credits
    return RateLimitSnapshot(
        limit_id=_MAIN_LIMIT_ID,
        primary=_window(limit.primary_window),
        secondary=_window(limit.secondary_window),
        credits=None
        if credits_ is None
        else CreditsSnapshot(
            has_credits=credits_.has_credits,
            unlimited=credits_.unlimited,
            balance=credits_.balance,
        ),
        individual_limit=_individual(control.individual_limit),
        spend_control_reached=control.reached,
        plan_type=plan,
        rate_limit_reached_type=next((each for each in reached if each == kind), None),
    )


def _other_limit(other: _OtherLimit, plan: PlanType) -> RateLimitSnapshot:
    limit = other.rate_limit or _Limit()
    return RateLimitSnapshot(
        limit_id=other.metered_feature,
        limit_name=other.limit_name,
        normal_model_slug=other.normal_model_slug,
        primary=_window(limit.primary_window),
        secondary=_window(limit.secondary_window),
        plan_type=plan,
    )


def _window(window: _Window | None) -> RateLimitWindow | None:
    if window is None:
        return None
    seconds = window.limit_window_seconds
    return RateLimitWindow(
        used_percent=window.used_percent,
        window_duration_mins=(seconds + 59) // 60 if seconds > 0 else None,
        resets_at=window.reset_at,
    )


def _individual(limit: _IndividualLimit | None) -> SpendControlLimitSnapshot | None:
    if limit is None:
        return None
    left = limit.remaining_percent
    return SpendControlLimitSnapshot(
        limit=limit.limit,
        used=limit.used,
        remaining_percent=100 - limit.used_percent if left is None else left,
        resets_at=limit.reset_at,
    )


async def read_token_usage(backend: AccountService) -> GetAccountTokenUsageResponse:
    """Return the token totals of the account.

    Raises:
        BackendError: they cannot be read.
        CredentialsRejected: the login was rejected and cannot be renewed.
    """
    stats = (await backend.get("profiles/me", _Profile)).stats
    days = stats.daily_usage_buckets
    return GetAccountTokenUsageResponse(
        summary=AccountTokenUsageSummary(
            current_streak_days=stats.current_streak_days,
            lifetime_tokens=stats.lifetime_tokens,
            longest_running_turn_sec=stats.longest_running_turn_sec,
            longest_streak_days=stats.longest_streak_days,
            peak_daily_tokens=stats.peak_daily_tokens,
        ),
        daily_usage_buckets=None
        if days is None
        else [AccountTokenUsageDailyBucket(day.start_date, day.tokens) for day in _newest(days)],
    )


def _newest(days: list[_Day]) -> list[_Day]:
    """Return the newest days, in the order of the backend."""
    if len(days) <= MAX_DAYS:
        return days
    oldest = sorted(day.start_date for day in days)[-MAX_DAYS]
    return [day for day in days if day.start_date >= oldest][:MAX_DAYS]


async def read_messages(backend: AccountService) -> GetWorkspaceMessagesResponse:
    """Return the messages of the workspace; a backend without the feature has none.

    Raises:
        BackendError: they cannot be read.
        CredentialsRejected: the login was rejected and cannot be renewed.
    """
    try:
        found = await backend.get("workspace-messages", _Messages)
    except BackendError as error:
        if error.status != _NOT_FOUND:
            raise
        return GetWorkspaceMessagesResponse(feature_enabled=False, messages=[])
    messages = [_message(each) for each in found.messages[:MAX_ENTRIES]]
    return GetWorkspaceMessagesResponse(feature_enabled=True, messages=messages)


def _message(message: _Message) -> WorkspaceMessage:
    kinds: tuple[WorkspaceMessageType, ...] = get_args(WorkspaceMessageType)
    return WorkspaceMessage(
        message_body=message.message_body,
        message_id=message.message_id,
        message_type=next((each for each in kinds if each == message.message_type), "unknown"),
        archived_at=_seconds(message.archived_at),
        created_at=_seconds(message.created_at),
    )


async def redeem_reset_credit(backend: AccountService, key: str, credit_id: str | None) -> str:
    """Spend a credit to reset the limits; return the outcome as the backend names it.

    Raises:
        BackendError: the backend refuses.
        CredentialsRejected: the login was rejected and cannot be renewed.
    """
    body: JsonValue = {"redeem_request_id": key}
    if credit_id is not None:
        body["credit_id"] = credit_id
    return (await backend.post("rate-limit-reset-credits/consume", body, _Redeemed)).code


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else _timestamp(moment)


def _timestamp(moment: datetime) -> int:
    """Return seconds since the epoch; without a zone, a moment could be before all local times."""
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
