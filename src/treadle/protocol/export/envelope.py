"""The JSON-RPC envelopes as structs, so that they are exported by the same rules as the rest.

`treadle.jsonrpc` decodes the wire; nothing decodes into these structs.
"""

from __future__ import annotations

from typing import Annotated

from treadle.protocol.account import GatewayOAuthLoginParams, GatewayOAuthReadParams
from treadle.protocol.account_usage import GetAccountRateLimitsParams, GetAccountTokenUsageParams
from treadle.protocol.base import AnyOf, Int64, JsonValue, RequestId, Sparse
from treadle.protocol.remote_control import RemoteControlDisableParams, RemoteControlEnableParams


class W3cTraceContext(Sparse, frozen=True):
    """The trace of a request, in the format of W3C Trace Context."""

    traceparent: str | None = None
    tracestate: str | None = None


class JSONRPCRequest(Sparse, frozen=True):
    """A request: its sender waits for the response with the same id."""

    id: RequestId
    method: str
    params: JsonValue = None
    trace: W3cTraceContext | None = None


class JSONRPCNotification(Sparse, frozen=True):
    """A message without a response."""

    method: str
    params: JsonValue = None


class JSONRPCResponse(Sparse, frozen=True):
    """The response to a request that succeeded."""

    id: RequestId
    result: JsonValue


class JSONRPCErrorError(Sparse, frozen=True):
    """The error: a code, a message, and data for programs."""

    code: Int64
    message: str
    data: JsonValue = None


class JSONRPCError(Sparse, frozen=True):
    """The response to a request that failed."""

    error: JSONRPCErrorError
    id: RequestId


JSONRPCMessage = Annotated[
    dict[str, JsonValue],
    AnyOf("JSONRPCRequest", "JSONRPCNotification", "JSONRPCResponse", "JSONRPCError"),
]
"""Any message of a connection, in either direction."""

# Params that the reference's schema lets a client omit.
NullableGatewayOAuthLoginParams = GatewayOAuthLoginParams | None
NullableGatewayOAuthReadParams = GatewayOAuthReadParams | None
NullableGetAccountRateLimitsParams = GetAccountRateLimitsParams | None
NullableGetAccountTokenUsageParams = GetAccountTokenUsageParams | None
NullableRemoteControlDisableParams = RemoteControlDisableParams | None
NullableRemoteControlEnableParams = RemoteControlEnableParams | None
