"""Translates refusals and failures of providers to `ModelError`.

HTTP 401 becomes `httpConnectionFailed` with its status, like in the current reference;
`unauthorized` means that the key is missing here, and no request was made.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from treadle.model.base import ModelError
from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo, CodexErrorInfoDetail, HttpStatus
from treadle.support.text.json_text import is_nested_deeper
from treadle.support.text.urls import origin_of, without_queries

Now = Callable[[], float]
"""Seconds since the Unix epoch."""

MAX_BODY_CHARS: Final = 2000
MAX_MESSAGE_CHARS: Final = 4000

_BY_CODE: Final[dict[str, tuple[CodexErrorInfo, bool]]] = {
    "context_length_exceeded": ("contextWindowExceeded", False),
    "insufficient_quota": ("usageLimitExceeded", False),
    "usage_limit_reached": ("usageLimitExceeded", False),
    "usage_limit_exceeded": ("usageLimitExceeded", False),
    "usage_not_included": ("usageLimitExceeded", False),
    "billing_error": ("usageLimitExceeded", False),
    "billing_hard_limit_reached": ("usageLimitExceeded", False),
    "rate_limit_exceeded": ("rateLimitExceeded", True),
    "rate_limit_error": ("rateLimitExceeded", True),
    "server_is_overloaded": ("serverOverloaded", True),
    "slow_down": ("serverOverloaded", True),
    "overloaded_error": ("serverOverloaded", True),
    "server_error": ("internalServerError", True),
    "internal_server_error": ("internalServerError", True),
    "api_error": ("internalServerError", True),
    "timeout_error": ("internalServerError", True),
    "flex_unavailable": ("flexUnavailable", True),
    "resource_unavailable": ("flexUnavailable", True),
    "invalid_prompt": ("badRequest", False),
    "invalid_request_error": ("badRequest", False),
    "cyber_policy": ("cyberPolicy", False),
    "cyber_policy_violation": ("cyberPolicy", False),
    "misalignment_policy_violation": ("misalignmentPolicyViolation", False),
    "authentication_error": ("unauthorized", False),
    "invalid_api_key": ("unauthorized", False),
}
# Some providers have no error code for it, only a message.
_CONTEXT: Final = re.compile(
    r"context[ _](length|window|size)|prompt is too long|maximum context|too many tokens|"
    r"exceeds? the (available|maximum) context|input is too long|max(imum)? input tokens",
    re.IGNORECASE,
)
_TRY_AGAIN: Final = re.compile(
    r"(?:try|retry)\s+(?:again\s+)?(?:in|after)\s*(?P<number>\d+(?:\.\d+)?)\s*"
    r"(?P<unit>ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?)\b",
    re.IGNORECASE,
)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
# The expression takes quadratic time for a long run of digits.
_MAX_DURATION: Final = 100
# An event may have 16 MiB; what a message says comes at its beginning.
_MAX_SEARCHED: Final = 64 * 1024
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RESET_HEADERS: Final = (
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset",
    "x-ratelimit-reset",
)


class Fault(Struct, frozen=True):
    """An error as the provider sent it."""

    message: str
    code: str = ""
    kind: str = ""
    resets_at: float | None = None
    resets_in_s: float | None = None


def read_fault(value: JsonValue) -> Fault:
    """Find code and message in any of the shapes that providers use."""
    if isinstance(value, dict) and isinstance(value.get("error"), dict | str):
        value = value["error"]
    if not isinstance(value, dict):
        return Fault(message=value if isinstance(value, str) else _as_text(value))
    message = value.get("message") or value.get("detail") or value.get("error_description")
    return Fault(
        message=message if isinstance(message, str) else _as_text(value),
        code=str(value.get("code") or ""),
        kind=str(value.get("type") or ""),
        resets_at=_number(value.get("resets_at")),
        resets_in_s=_number(value.get("resets_in_seconds")),
    )


def in_stream(fault: Fault, *, now: Now = time.time) -> ModelError:
    """Return an error that came in the middle of a response that began with HTTP 200."""
    info, is_retryable = _classified(fault) or ("other", True)
    return ModelError(
        # The endpoint shortens it after removing secrets: a cut could hide part of one.
        fault.message.strip() or "the provider reported an error without a message",
        info=info,
        is_retryable=is_retryable,
        retry_after_s=_delay_of(fault, now),
        phase="stream",
    )


def from_status(
    status: int, reason: str, body: bytes, headers: Mapping[str, str], *, url: str, now: Now
) -> ModelError:
    """Return the error of a response that is not 200, with the time to retry."""
    fault = _fault_of_body(body)
    info, is_retryable = _by_status(status, fault)
    words = shorten(fault.message) or "no message"
    delay = _delay_of(fault, now)
    return ModelError(
        f"unexpected status {status} {reason}: {words}, url: {url}",
        info=info,
        http_status=status,
        is_retryable=is_retryable,
        retry_after_s=delay if delay is not None else delay_of_headers(headers, now=now),
        details=shorten(body.decode("utf-8", "replace")) or None,
    )


def refused_redirect(status: int, url: str, target: str | None) -> ModelError:
    """Return the error for a redirect that would send the request and its keys elsewhere."""
    where = "an unknown location" if target is None else origin_of(target)
    return ModelError(
        f"redirect from {url} to {where} was not followed (HTTP {status}): requests carry keys, "
        "which stay with the configured origin; set base_url to the provider's final address",
        info=CodexErrorInfoDetail(http_connection_failed=HttpStatus(http_status_code=status)),
        http_status=status,
    )


def connection_failed(error: Exception, url: str, *, is_retryable: bool = True) -> ModelError:
    """Return the error for a failed connection."""
    return ModelError(
        f"no connection to {url}: {words_of(error)}",
        info=CodexErrorInfoDetail(http_connection_failed=HttpStatus()),
        is_retryable=is_retryable,
    )


def compressed(url: str, encoding: str) -> ModelError:
    """Return the error for a compressed response: its size is unknown before unpacking."""
    return ModelError(
        f"the response from {url} is compressed (content-encoding: {shorten(encoding, 100)}), "
        "although the request accepts `identity` only",
        info=CodexErrorInfoDetail(http_connection_failed=HttpStatus()),
    )


def words_of(error: BaseException) -> str:
    """Return the message of a library error, without the queries of URLs: they contain keys."""
    return without_queries(str(error)) or type(error).__name__


def no_answer(url: str, seconds: float) -> ModelError:
    """Return the error for a provider that accepted the request and sent nothing."""
    return ModelError(
        f"no response from {url} within {seconds:g} s",
        info=CodexErrorInfoDetail(response_stream_connection_failed=HttpStatus()),
        is_retryable=True,
    )


def disconnected(why: str, *, is_retryable: bool = True) -> ModelError:
    """Return the error for a stream that ended before the response did."""
    return ModelError(
        f"stream disconnected before completion: {why}",
        info=CodexErrorInfoDetail(response_stream_disconnected=HttpStatus()),
        is_retryable=is_retryable,
        phase="stream",
    )


def mark_progress(error: ModelError, status: int, *, emitted: bool) -> None:
    """Note how far a stream came: one that was cut before its first event was never connected."""
    error.emitted = emitted
    info = error.info if not emitted else None
    if isinstance(info, CodexErrorInfoDetail) and info.response_stream_disconnected is not None:
        error.info = CodexErrorInfoDetail(
            response_stream_connection_failed=HttpStatus(http_status_code=status)
        )
        error.http_status = status


def incomplete(reason: str) -> ModelError:
    """Return the error for a response that the provider ended early."""
    return ModelError(f"incomplete response, reason: {reason}", phase="stream")


def missing_key(variable: str, provider: str, instructions: str | None) -> ModelError:
    """Return the error for a missing key."""
    hint = f" ({instructions})" if instructions else ""
    return ModelError(
        f"no key for the model provider {provider!r}: set {variable}{hint}", info="unauthorized"
    )


def too_many_attempts(error: ModelError) -> ModelError:
    """Return the error for the last of several rate-limited attempts."""
    status = error.http_status
    return ModelError(
        f"exceeded retry limit, last status: {status} {_reason(status)}",
        info=CodexErrorInfoDetail(
            response_too_many_failed_attempts=HttpStatus(http_status_code=status)
        ),
        http_status=status,
        retry_after_s=error.retry_after_s,
        emitted=error.emitted,
        phase=error.phase,
        details=error.message,
    )


def delay_of_headers(headers: Mapping[str, str], *, now: Now = time.time) -> float | None:
    """Return how long the provider asks to wait, in seconds."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    after = headers.get("retry-after")
    if after is not None:
        return _seconds_until(after, now)
    if headers.get("x-ratelimit-remaining-requests", "0") != "0":
        return None
    waits = (_seconds_until(headers[name], now) for name in _RESET_HEADERS if name in headers)
    return max((wait for wait in waits if wait is not None), default=None)


def shorten(text: str, limit: int = MAX_BODY_CHARS) -> str:
    """Shorten a provider's message, which may be a web page."""
    text = text.strip()
    return text if len(text) <= limit else f"{text[:limit]}..."


def _by_status(status: int, fault: Fault) -> tuple[CodexErrorInfo, bool]:
    known = _classified(fault)
    connection: CodexErrorInfo = CodexErrorInfoDetail(
        http_connection_failed=HttpStatus(http_status_code=status)
    )
    if status in (400, 413, 422):
        return known if known is not None and not known[1] else ("badRequest", False)
    if status == 402:
        return "usageLimitExceeded", False
    if status == 429:
        is_limit = known is not None and known[0] == "usageLimitExceeded"
        return ("usageLimitExceeded", False) if is_limit else ("rateLimitExceeded", True)
    if status in (503, 529):
        return "serverOverloaded", True
    if status >= 500:
        is_overload = known is not None and known[0] == "serverOverloaded"
        return ("serverOverloaded" if is_overload else "internalServerError"), True
    return connection, status in (408, 409, 425)


def _classified(fault: Fault) -> tuple[CodexErrorInfo, bool] | None:
    if fault.code in _BY_CODE:
        return _BY_CODE[fault.code]
    if _CONTEXT.search(fault.message, 0, _MAX_SEARCHED):
        return "contextWindowExceeded", False
    return _BY_CODE.get(fault.kind)


def _fault_of_body(body: bytes) -> Fault:
    try:
        # Decoders recurse, and so does the code that shows an error.
        if not is_nested_deeper(body):
            return read_fault(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return Fault(message=body.decode("utf-8", "replace"))


def _delay_of(fault: Fault, now: Now) -> float | None:
    if fault.resets_in_s is not None:
        return max(0.0, fault.resets_in_s)
    if fault.resets_at is not None:
        return max(0.0, fault.resets_at - now())
    found = _TRY_AGAIN.search(fault.message, 0, _MAX_SEARCHED)
    if found is None:
        return None
    unit = found["unit"].lower()
    is_milli = unit.startswith(("ms", "milli"))
    return float(found["number"]) * (0.001 if is_milli else 60.0 if unit[0] == "m" else 1.0)


def _seconds_until(text: str, now: Now) -> float | None:
    """Parse seconds, `6m0s`, an HTTP date or an ISO time."""
    number = _number(text)
    if number is not None:
        # A number this large is a point in time, not a delay.
        return max(0.0, number - now() if number > 1e9 else number)
    parts = _DURATION.findall(text[:_MAX_DURATION])
    if parts and "".join(amount + unit for amount, unit in parts) == text.strip():
        return sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in parts)
    from email.utils import parsedate_to_datetime  # few providers send dates

    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            return max(0.0, parse(text).timestamp() - now())
        except (TypeError, ValueError, OverflowError):
            continue
    return None


def _number(value: JsonValue) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _as_text(value: JsonValue) -> str:
    return msgspec.json.encode(value).decode()


def _reason(status: int | None) -> str:
    from http import HTTPStatus

    try:
        return HTTPStatus(status or 0).phrase
    except ValueError:
        return ""
