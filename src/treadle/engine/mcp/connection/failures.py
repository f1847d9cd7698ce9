"""Removes keys from the result of a tool that failed, which may quote the request."""

from __future__ import annotations

import msgspec

from treadle.protocol.base import JsonValue
from treadle.support.text.secrets import Secrets

Result = dict[str, JsonValue]


def redact_failure(result: Result, secrets: Secrets) -> Result:
    """Return a result without secrets if it is an error.

    An error that is too long to search is reduced to the beginning of its text.
    """
    if result.get("isError") is not True or not secrets:
        return result
    text = msgspec.json.encode(result).decode()
    redacted = secrets.redact(text)
    if redacted == text:
        return result
    try:
        # A secret is a part of a string, so the rest is the same document.
        return msgspec.json.decode(redacted, type=Result)
    except msgspec.MsgspecError:
        words = secrets.redact("\n".join(_texts(result.get("content"))))
        return {"isError": True, "content": [{"type": "text", "text": words}]}


def _texts(content: JsonValue) -> list[str]:
    blocks = content if isinstance(content, list) else []
    texts = (block.get("text") for block in blocks if isinstance(block, dict))
    return [text for text in texts if isinstance(text, str)]
