"""Typed answers: the schema that is sent to the model, and decoding of the answer."""

from __future__ import annotations

import json
import re
from typing import Final, TypeVar

from treadle.client._runtime.schema import read_as, schema_of, strict, without_nulls
from treadle.client.errors import OutputInvalid
from treadle.protocol.base import JsonValue

T = TypeVar("T")

# Each blank can match in one way only: otherwise many empty lines take quadratic time.
_FENCE: Final = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL)

REPAIR: Final = (
    "Your last message does not fit the required output: {reason}\n"
    "Reply again with the corrected JSON document and nothing else."
)
"""The message to a model whose answer does not match the schema."""


def output_schema(kind: type[T]) -> JsonValue:
    """Return the output schema for values of a type."""
    return strict(schema_of(kind))


def read_output(kind: type[T], text: str) -> T:
    """Decode the final answer as a value of the type.

    Raises:
        OutputInvalid: the answer does not match the type.
    """
    fenced = _FENCE.search(text)
    try:
        document = json.loads(fenced[1] if fenced else text)
    except ValueError as error:
        raise OutputInvalid(text, f"invalid JSON: {error}") from None
    try:
        return read_as(kind, document)
    except ValueError as error:
        reason = str(error)
    try:
        # In a strict schema, optional properties are null instead of missing.
        return read_as(kind, without_nulls(document))
    except ValueError:
        raise OutputInvalid(text, reason) from None
