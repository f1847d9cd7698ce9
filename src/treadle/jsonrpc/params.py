"""Decodes raw params into a typed value; an error names the method and the field."""

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
    """Decode the params of a message.

    Raises:
        InvalidParams: they match the method neither in the current nor in an older spelling.
    """
    decoder = method.params_decoder
    try:
        return decoder.decode(_EMPTY if raw is None else raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        if raw is None:
            # Params may be omitted only if every field is optional.
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
        # What is still wrong in the current spelling; the first error if that cannot be said.
        cause = second if isinstance(second, msgspec.ValidationError) else error
        fault = explain(cause, method.params)
        raise InvalidParams(
            f"Invalid request: {fault.message} in the params of {method.method}",
            method=method.method,
            path=fault.path,
        ) from error
