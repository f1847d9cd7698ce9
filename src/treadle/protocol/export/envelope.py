"""The JSON-RPC envelopes as structs, so that they are exported by the same rules as the rest.

The wire itself is read by `treadle.jsonrpc`; nothing decodes into these.
"""

from __future__ import annotations

from typing import Annotated

from treadle.protocol.account_usage import GetAccountRateLimitsParams, GetAccountTokenUsageParams
from treadle.protocol.base import AnyOf, Int64, JsonValue, RequestId, Sparse
from treadle.protocol.remote_control import RemoteControlDisableParams, RemoteControlEnableParams


class W3cTraceContext(Sparse, frozen=True):
    """The trace that a request belongs to, as W3C Trace Context spells it."""

    traceparent: str | None = None
    tracestate: str | None = None


class JSONRPCRequest(Sparse, frozen=True):
    """A call: its sender waits for the answer with the same id."""

    id: RequestId
    method: str
    params: JsonValue = None
    trace: W3cTraceContext | None = None


class JSONRPCNotification(Sparse, frozen=True):
    """A message that nobody answers."""

    method: str
    params: JsonValue = None


class JSONRPCResponse(Sparse, frozen=True):
    """The answer to a call that succeeded."""

    id: RequestId
    result: JsonValue


class JSONRPCErrorError(Sparse, frozen=True):
    """What went wrong: a code, a sentence, and details for programs."""

    code: Int64
    message: str
    data: JsonValue = None


class JSONRPCError(Sparse, frozen=True):
    """The answer to a call that failed."""

    error: JSONRPCErrorError
    id: RequestId


JSONRPCMessage = Annotated[
    dict[str, JsonValue],
    AnyOf("JSONRPCRequest", "JSONRPCNotification", "JSONRPCResponse", "JSONRPCError"),
]
"""Anything that may travel over a connection, in either direction."""

# Params that the reference's schema lets a client leave out altogether.
NullableGetAccountRateLimitsParams = GetAccountRateLimitsParams | None
NullableGetAccountTokenUsageParams = GetAccountTokenUsageParams | None
NullableRemoteControlDisableParams = RemoteControlDisableParams | None
NullableRemoteControlEnableParams = RemoteControlEnableParams | None
