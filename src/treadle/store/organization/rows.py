"""Columns that contain JSON: a damaged one costs its value, not the rows beside it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")

logger = logging.getLogger(__name__)


def decoded_column(decode: Callable[[str], T], text: str, instead: T) -> T:
    """Return the value of a column, or another one if the column is damaged."""
    try:
        return decode(text)
    except (msgspec.DecodeError, TypeError, UnicodeDecodeError, RecursionError) as error:
        logger.warning("damaged column", extra={"reason": str(error)})
        return instead
