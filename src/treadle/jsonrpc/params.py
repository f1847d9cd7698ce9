"""From raw params to a typed value, or an error that names the method, the field and the fix."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from treadle.jsonrpc.errors import InvalidParams
from treadle.protocol.aliases import rewrite
from treadle.protocol.explain import explain
from treadle.protocol.method import Notification, Request

P = TypeVar("P")
R = TypeVar("R")

_EMPTY = b"{}"


def decode_params(method: Request[P, R] | Notification[P], raw: msgspec.Raw | None) -> P:
    """Read the params of a message.

    Raises:
        InvalidParams: they do not fit the method, in the usual or in any known older spelling.
    """
    decoder = method.params_decoder
    try:
        return decoder.decode(_EMPTY if raw is None else raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        if raw is None:
            # Params may be left out where every field is optional, and only there.
            raise InvalidParams(
                f"Invalid request: missing field `params` of {method.method}",
                method=method.method,
                path="",
            ) from error
        return _decode_rewritten(method, raw, error)


def _decode_rewritten(
    method: Request[P, R] | Notification[P], raw: msgspec.Raw, error: Exception
) -> P:
    try:
        return msgspec.convert(rewrite(msgspec.json.decode(raw)), method.params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as second:
        # What is wrong whichever spelling is meant.
        told = second if isinstance(second, msgspec.ValidationError) else error
        fault = explain(told, method.params)
        raise InvalidParams(
            f"Invalid request: {fault.message} in the params of {method.method}",
            method=method.method,
            path=fault.path,
        ) from error
