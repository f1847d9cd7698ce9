"""What the backend knows of an account: rate limits, token totals, messages, credits."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from tests.accounts.ground import Ground
from tests.harness.account_service import USAGE, Send, document, hangs, is_endless, raw
from tests.harness.model_server import Reply, says
from treadle.accounts import usage
from treadle.protocol.base import JsonValue
from treadle.server.handlers import account_usage

WHAM = "/backend-api/wham"
LIMITS, TOTALS = "account/rateLimits/read", "account/usage/read"
MESSAGES, CONSUME = "account/workspaceMessages/read", "account/rateLimitResetCredit/consume"
NUDGE = "account/sendAddCreditsNudgeEmail"


def limit(**more: JsonValue) -> JsonValue:
    return {
        "limitId": "codex",
        "limitName": None,
        "normalModelSlug": None,
        "primary": {"usedPercent": 25, "windowDurationMins": 15, "resetsAt": 1730947200},
        "secondary": None,
        "credits": {"hasCredits": True, "unlimited": False, "balance": "9.99"},
        "individualLimit": None,
        "spendControlReached": None,
        "planType": "pro",
        "rateLimitReachedType": None,
        **more,
    }


async def test_rate_limits_come_from_the_backend(ground: Ground) -> None:
    """Upstream: the requests and the answer."""
    login = ground.service.auth_json()
    ground.store(login)

    found = await (await ground.client()).request(LIMITS, None)

    assert found == {
        "rateLimits": limit(),
        "rateLimitsByLimitId": {"codex": limit()},
        "rateLimitResetCredits": None,
        "accountId": None,
        "ordinaryUsageAllowed": None,
        "rateLimitUpsell": None,
    }
    (request,) = ground.service.of_path(f"{WHAM}/usage")
    assert request.headers["authorization"] == f"Bearer {login['tokens']['access_token']}"
    assert request.headers["chatgpt-account-id"] == "acc-1"
    assert len(ground.service.of_path(f"{WHAM}/rate-limit-reset-credits")) == 1


async def test_every_part_of_the_limits_is_passed_on(ground: Ground) -> None:
    """Upstream: the names in both formats."""
    window = {"used_percent": 70, "limit_window_seconds": 90, "reset_at": 789}
    other = {"limit_name": "L", "metered_feature": "M", "normal_model_slug": "n"}
    status = {
        **USAGE,
        "plan_type": "education",
        "additional_rate_limits": [{**other, "rate_limit": {"primary_window": window}}],
        "rate_limit_reached_type": {"type": "workspace_member_credits_depleted"},
        "rate_limit_reset_credits": {"available_count": 2},
        "spend_control": {
            "reached": True,
            "individual_limit": {
                "limit": "10",
                "used": "4",
                "remaining": "6",
                "used_percent": 40,
                "reset_at": 99,
            },
        },
        "account_id": "acc-9",
    }
    credit = {
        "id": "c1",
        "reset_type": "codex_rate_limits",
        "status": "available",
        "granted_at": "2026-06-14T00:00:00Z",
        "expires_at": None,
        "title": "T",
        "description": "D",
    }
    ground.service.answer(f"{WHAM}/usage", document(status))
    details = {"available_count": 1, "credits": [credit, {**credit, "status": "odd"}]}
    ground.service.answer(f"{WHAM}/rate-limit-reset-credits", document(details))
    ground.store(ground.service.auth_json())
    client = await ground.client()

    found = await client.request(LIMITS, {})
    brief = await client.request(LIMITS, {"excludeResetCreditDetails": True})

    individual = {"limit": "10", "used": "4", "remainingPercent": 60, "resetsAt": 99}
    main = limit(
        planType="edu",
        individualLimit=individual,
        spendControlReached=True,
        rateLimitReachedType="workspace_member_credits_depleted",
    )
    shown = limit(
        limitId="M",
        limitName="L",
        normalModelSlug="n",
        primary={"usedPercent": 70, "windowDurationMins": 2, "resetsAt": 789},
        credits=None,
        planType="edu",
    )
    assert (found["rateLimits"], found["rateLimitsByLimitId"]) == (
        main,
        {"codex": main, "M": shown},
    )
    one = {
        "id": "c1",
        "resetType": "codexRateLimits",
        "status": "available",
        "grantedAt": 1781395200,
        "expiresAt": None,
        "title": "T",
        "description": "D",
    }
    assert found["rateLimitResetCredits"] == {
        "availableCount": 1,
        "credits": [one, {**one, "status": "unknown"}],
    }
    assert found["accountId"] == "acc-9"
    assert brief["rateLimitResetCredits"] == {"availableCount": 2, "credits": None}


async def test_token_totals_come_from_the_backend(ground: Ground) -> None:
    """Upstream: the same request and answer."""
    stats = {
        "lifetime_tokens": 123,
        "peak_daily_tokens": 45,
        "longest_running_turn_sec": 67,
        "current_streak_days": 8,
        "longest_streak_days": 9,
        "daily_usage_buckets": [{"start_date": "2026-05-29", "tokens": 10}],
    }
    ground.service.answer(f"{WHAM}/profiles/me", document({"stats": stats}))
    ground.store(ground.service.auth_json())

    assert await (await ground.client()).request(TOTALS, {}) == {
        "summary": {
            "lifetimeTokens": 123,
            "peakDailyTokens": 45,
            "longestRunningTurnSec": 67,
            "currentStreakDays": 8,
            "longestStreakDays": 9,
        },
        "dailyUsageBuckets": [{"startDate": "2026-05-29", "tokens": 10}],
        "threadUsage": None,
    }


@pytest.mark.parametrize("order", [1, -1])
async def test_the_newest_days_of_a_long_history_are_passed_on(ground: Ground, order: int) -> None:
    days = [str(date(2024, 1, 1) + timedelta(days=number)) for number in range(500)]
    buckets = [{"start_date": day, "tokens": 1} for day in days[::order]]
    stats = document({"stats": {"daily_usage_buckets": buckets}})
    ground.service.answer(f"{WHAM}/profiles/me", stats)
    ground.store(ground.service.auth_json())

    found = (await (await ground.client()).request(TOTALS, {}))["dailyUsageBuckets"]

    assert [day["startDate"] for day in found] == days[-usage.MAX_DAYS :][::order]


THREAD = "01a1f634-c522-7690-87f4-11a1dee048c0"
ESTIMATES = f"{WHAM}/usage/thread_usage/query"
NO_TOTALS = {
    "lifetimeTokens": None,
    "peakDailyTokens": None,
    "longestRunningTurnSec": None,
    "currentStreakDays": None,
    "longestStreakDays": None,
}


def estimate(**more: JsonValue) -> JsonValue:
    return {"thread_id": THREAD, "estimated_usage_credits_micros": 46, **more}


async def test_the_cost_of_a_thread_comes_from_the_backend(ground: Ground) -> None:
    """Upstream 0.169.0: the request and the answer; what is not reported is null."""
    group = {
        "model": "gpt-5",
        "reasoning_effort": "high",
        "speed": "fast",
        "estimated_usage_credits_micros": 7,
        "net_new_input_tokens": 1,
        "cached_input_tokens": 2,
        "input_tokens": 3,
        "output_tokens": 4,
        "total_tokens": 5,
    }
    dollars = {"estimated_usage_usd_micros": 18, "native_usage_usd_micros": 32}
    known = document({"threads": [estimate(**dollars, groups=[group])]})
    bare = document({"threads": [estimate()]})
    ground.service.answer(ESTIMATES, known, bare, document({}, 404))
    ground.store(ground.service.auth_json())
    client = await ground.client()

    full, brief, without = [await client.request(TOTALS, {"threadId": THREAD}) for _ in range(3)]

    assert full == {
        "summary": NO_TOTALS,
        "dailyUsageBuckets": None,
        "threadUsage": {
            "threadId": THREAD,
            "estimatedUsageCreditsMicros": 46,
            "estimatedUsageUsdMicros": 18,
            "nativeUsageUsdMicros": 32,
            "groups": [
                {
                    "model": "gpt-5",
                    "reasoningEffort": "high",
                    "speed": "fast",
                    "estimatedUsageCreditsMicros": 7,
                    "netNewInputTokens": 1,
                    "cachedInputTokens": 2,
                    "inputTokens": 3,
                    "outputTokens": 4,
                    "totalTokens": 5,
                }
            ],
        },
    }
    assert brief["threadUsage"] == {
        "threadId": THREAD,
        "estimatedUsageCreditsMicros": 46,
        "estimatedUsageUsdMicros": None,
        "nativeUsageUsdMicros": None,
        "groups": [],
    }
    assert without == {"summary": NO_TOTALS, "dailyUsageBuckets": None, "threadUsage": None}
    bodies = [request.body for request in ground.service.of_path(ESTIMATES)]
    assert bodies == [{"thread_ids": [THREAD]}] * 3
    assert ground.service.of_path(f"{WHAM}/profiles/me") == []


OMITTED = "thread usage response omitted requested thread"
UNEXPECTED = "thread usage returned unexpected threads"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (document({"threads": []}), OMITTED),
        (document({"threads": [{"thread_id": THREAD, "groups": []}]}), OMITTED),
        (document({"threads": [{**estimate(), "thread_id": "other"}]}), UNEXPECTED),
        (document({"threads": [estimate(), estimate()]}), UNEXPECTED),
        (document({"threads": [estimate(groups=[{"model": "x"}])]}), "missing required field"),
        (document({"threads": [estimate(estimated_usage_usd_micros=1.5)]}), "Expected `int"),
        (document({"threads": [estimate(native_usage_usd_micros=1 << 64)]}), "Expected `int"),
        (document({"x": 1}), "missing required field"),
        (document({}, 500), "failed: 500"),
        (hangs, "did not answer within 0.2 s"),
        (is_endless, "the answer has more than 1048576 bytes"),
    ],
)
async def test_a_cost_that_cannot_be_read_fails_the_request(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, fault: Reply | Send, reason: str
) -> None:
    """Upstream: an answer without the thread, or about another one, is an error."""
    if fault is hangs:
        monkeypatch.setattr(account_usage, "USAGE_SECONDS", 0.2)
    ground.service.answer(ESTIMATES, fault)
    ground.store(ground.service.auth_json())

    refused = await (await ground.client()).refusal(TOTALS, {"threadId": THREAD})

    assert refused.code == -32603
    assert refused.message.startswith("failed to fetch thread usage: ")
    assert reason in refused.message


@pytest.mark.parametrize("thread_id", ["nope", "", "../x", THREAD + "0"])
async def test_the_cost_of_no_thread_is_refused(ground: Ground, thread_id: str) -> None:
    """Upstream: the backend is not asked."""
    ground.store(ground.service.auth_json())

    refused = await (await ground.client()).refusal(TOTALS, {"threadId": thread_id})

    assert (refused.code, refused.message) == (
        -32600,
        f"invalid thread id: {thread_id!r} is not a UUID",
    )
    assert ground.service.of_path(ESTIMATES) == []


async def test_messages_come_from_the_backend(ground: Ground) -> None:
    """Upstream: a backend without the feature says 404."""
    times = {"created_at": "2026-06-14T00:00:00Z", "archived_at": None}
    headline = {"message_id": "m1", "message_type": "headline", "message_body": "Body", **times}
    other = {"message_id": "m2", "message_type": "odd", "message_body": "B"}
    messages = {"messages": [headline, other]}
    ground.service.answer(
        f"{WHAM}/workspace-messages", document(messages), document({}), document({}, 404)
    )
    ground.store(ground.service.auth_json())
    client = await ground.client()

    found = [await client.request(MESSAGES, None) for _ in range(3)]

    shown = {"createdAt": 1781395200, "archivedAt": None}
    assert found == [
        {
            "featureEnabled": True,
            "messages": [
                {"messageId": "m1", "messageType": "headline", "messageBody": "Body", **shown},
                {
                    "messageId": "m2",
                    "messageType": "unknown",
                    "messageBody": "B",
                    "createdAt": None,
                    "archivedAt": None,
                },
            ],
        },
        {"featureEnabled": True, "messages": []},
        {"featureEnabled": False, "messages": []},
    ]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("reset", "reset"),
        ("nothing_to_reset", "nothingToReset"),
        ("no_credit", "noCredit"),
        ("already_redeemed", "alreadyRedeemed"),
    ],
)
async def test_a_credit_is_spent(ground: Ground, code: str, outcome: str) -> None:
    """Upstream: the key makes a repetition harmless."""
    path = f"{WHAM}/rate-limit-reset-credits/consume"
    ground.service.answer(path, document({"code": code}))
    ground.store(ground.service.auth_json())
    client = await ground.client()

    found = await client.request(CONSUME, {"idempotencyKey": "k", "creditId": "c1"})
    await client.request(CONSUME, {"idempotencyKey": "k2"})

    assert found == {"outcome": outcome}
    assert ground.service.bodies(path) == [
        {"redeem_request_id": "k", "credit_id": "c1"},
        {"redeem_request_id": "k2"},
    ]


async def test_the_owner_of_a_workspace_is_notified(ground: Ground) -> None:
    """Upstream: 429 means that there was an email recently."""
    path = f"{WHAM}/accounts/send_add_credits_nudge_email"
    ground.service.answer(path, document({}), document({}, 429), document({"e": 1}, 500))
    ground.store(ground.service.auth_json())
    client = await ground.client()

    sent = await client.request(NUDGE, {"creditType": "credits"})
    recent = await client.request(NUDGE, {"creditType": "usage_limit"})
    refused = await client.refusal(NUDGE, {"creditType": "credits"})

    assert (sent, recent) == ({"status": "sent"}, {"status": "cooldown_active"})
    assert refused.message == (
        f"failed to notify workspace owner: POST {ground.service.url}{path} failed: 500 Internal"
        ' Server Error; content-type=application/json; body={"e": 1}'
    )
    assert ground.service.bodies(path)[1] == {"credit_type": "usage_limit"}


async def test_a_rejected_token_is_renewed_for_the_backend(ground: Ground) -> None:
    ground.store(ground.service.auth_json())
    ground.service.valid.clear()

    found = await (await ground.client()).request(LIMITS, None)

    assert found["rateLimits"] == limit()
    assert len(ground.service.bodies("/oauth/token")) == 1


async def test_a_backend_of_the_other_kind_has_other_paths(ground: Ground) -> None:
    """Upstream: without `/backend-api` in the address, the paths begin with `/api/codex`."""
    path = ground.home / "config.toml"
    path.write_text(path.read_text("utf-8").replace("/backend-api", "/"), "utf-8")
    ground.store(ground.service.auth_json())

    found = await (await ground.client()).request(LIMITS, None)

    assert found["rateLimits"] == limit()
    assert len(ground.service.of_path("/api/codex/usage")) == 1


FAULTS: list[tuple[Reply | Send, str]] = [
    (
        document({}, 500),
        "failed: 500 Internal Server Error; content-type=application/json; body={}",
    ),
    (document([]), "Decode error for "),
    (document({}), "missing required field"),
    (raw(b"\x00\r\n\r\n"), "not valid HTTP"),
    (raw(b""), "the server closed the connection"),
    (is_endless, "the answer has more than 1048576 bytes"),
    (hangs, "did not answer within 0.2 s"),
]


@pytest.mark.parametrize(("fault", "reason"), FAULTS)
@pytest.mark.parametrize(
    ("method", "path", "what"),
    [
        (LIMITS, "usage", "failed to fetch codex rate limits: "),
        (TOTALS, "profiles/me", "failed to fetch token usage profile: "),
    ],
)
async def test_a_backend_that_fails_fails_the_request(
    ground: Ground,
    monkeypatch: pytest.MonkeyPatch,
    *,
    method: str,
    path: str,
    what: str,
    fault: Reply | Send,
    reason: str,
) -> None:
    if fault is hangs:
        monkeypatch.setattr("treadle.accounts.services.DOCUMENT_SECONDS", 0.2)
        monkeypatch.setattr(account_usage, "USAGE_SECONDS", 0.2)
    ground.service.answer(f"{WHAM}/{path}", fault)
    ground.store(ground.service.auth_json())

    refused = await (await ground.client()).refusal(method, {})

    assert refused.code == -32603
    assert refused.message.startswith(what)
    assert reason in refused.message


async def test_an_error_of_the_backend_does_not_quote_the_token(ground: Ground) -> None:
    login = ground.service.auth_json()
    token = login["tokens"]["access_token"]
    ground.service.answer(f"{WHAM}/usage", document({"your_token": token}, 500))
    ground.store(login)

    refused = await (await ground.client()).refusal(LIMITS, None)

    assert '"your_token": "[redacted]"' in refused.message


@pytest.mark.parametrize(
    ("method", "params", "purpose"),
    [
        (LIMITS, None, "to read rate limits"),
        (TOTALS, {}, "to read token usage"),
        (MESSAGES, None, "to read workspace messages"),
        (CONSUME, {"idempotencyKey": "k"}, "for rate limit reset credits"),
        (NUDGE, {"creditType": "credits"}, "to notify workspace owner"),
    ],
)
async def test_they_need_a_chatgpt_login(
    ground: Ground, method: str, params: JsonValue, purpose: str
) -> None:
    """Upstream's texts."""
    client = await ground.client()
    without = await client.refusal(method, params)
    ground.store({"OPENAI_API_KEY": "sk-1"})
    with_key = await client.refusal(method, params)

    assert without.message == f"codex account authentication required {purpose}"
    assert with_key.message == f"chatgpt authentication required {purpose}"
    assert (without.code, without.kind) == (-32600, "loginRequired")
    assert ground.service.requests == []


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        (CONSUME, {"idempotencyKey": ""}, "idempotencyKey must not be empty"),
        (CONSUME, {"idempotencyKey": "k", "creditId": ""}, "creditId must not be empty"),
        (
            CONSUME,
            {"idempotencyKey": "k" * 257},
            "idempotencyKey has 257 characters, expected at most 256",
        ),
        (
            "accountSession/switch",
            {"sessionId": "s", "accountId": ""},
            "accountId must not be empty",
        ),
    ],
)
async def test_unusable_names_are_refused(
    ground: Ground, method: str, params: JsonValue, message: str
) -> None:
    ground.store(ground.service.auth_json())

    assert (await (await ground.client()).refusal(method, params)).message == message
    assert ground.service.requests == []


async def test_headers_of_a_response_are_published_as_limits(ground: Ground) -> None:
    """Upstream: percent, minutes and reset of each window."""
    ground.store(ground.service.auth_json())
    reply = says("hi")
    headers = {
        "x-codex-primary-used-percent": "12.5",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": "1730947200",
        "x-codex-plan-type": "plus",
    }
    ground.service.replies.append(Reply(steps=reply.steps, headers=headers))
    client = await ground.client()
    thread_id = await client.start()
    await client.start_turn(thread_id)

    limits = (await client.until("account/rateLimits/updated"))[-1]["params"]["rateLimits"]

    assert limits["primary"] == {
        "usedPercent": 12,
        "windowDurationMins": 300,
        "resetsAt": 1730947200,
    }
    assert limits["planType"] == "plus"
