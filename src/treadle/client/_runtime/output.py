"""Answers as values of a type: the schema that goes out, and reading what comes back."""

from __future__ import annotations

import json
import re
from typing import Final, TypeVar

from treadle.client._runtime.schema import read_as, schema_of, strict, without_nulls
from treadle.client.errors import OutputInvalid
from treadle.protocol.base import JsonValue

T = TypeVar("T")

# One way to read each blank: with several, many empty lines would take quadratic time.
_FENCE: Final = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL)

REPAIR: Final = (
    "Your last message does not fit the required output: {reason}\n"
    "Reply again with the corrected JSON document and nothing else."
)
"""What the model is told when its answer does not fit."""


def output_schema(kind: type[T]) -> JsonValue:
    """The schema that asks a model for a value of this type."""
    return strict(schema_of(kind))


def read_output(kind: type[T], text: str) -> T:
    """The model's last word as a value of the type.

    Raises:
        OutputInvalid: it does not fit.
    """
    fenced = _FENCE.search(text)
    try:
        document = json.loads(fenced[1] if fenced else text)
    except ValueError as error:
        raise OutputInvalid(text, f"no JSON: {error}") from None
    try:
        return read_as(kind, document)
    except ValueError as error:
        reason = str(error)
    try:
        # A strict schema makes null of what may be missing.
        return read_as(kind, without_nulls(document))
    except ValueError:
        raise OutputInvalid(text, reason) from None
