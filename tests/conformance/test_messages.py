"""Golden messages: the reference's messages pass through our structs unchanged.

`messages.json` was written by hand from transcripts of 0.163.0, with values that distinguish the
fields. A word in parentheses distinguishes messages of one method.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from treadle.protocol.base import JsonValue
from treadle.protocol.client_requests import CLIENT_REQUESTS
from treadle.protocol.notifications import SERVER_NOTIFICATIONS
from treadle.protocol.server_requests import SERVER_REQUESTS

MESSAGES: dict[str, JsonValue] = json.loads(
    Path(__file__).with_name("messages.json").read_text(encoding="utf-8")
)


def decoder(title: str) -> msgspec.json.Decoder[JsonValue]:
    """Return the decoder of a title: `METHOD params`, `METHOD result` or a notification METHOD."""
    method, _, kind = title.partition(" ")
    if kind not in ("params", "result"):
        return SERVER_NOTIFICATIONS[method].params_decoder
    request = CLIENT_REQUESTS.get(method) or SERVER_REQUESTS[method]
    return request.params_decoder if kind == "params" else request.result_decoder


@pytest.mark.parametrize("title", MESSAGES)
def test_a_message_of_the_reference_is_encoded_as_it_was(title: str) -> None:
    """Upstream: nulls, absent fields, tags and snake_case parts are all part of the wire format."""
    message = MESSAGES[title]

    read = decoder(title).decode(json.dumps(message))

    assert json.loads(msgspec.json.encode(read)) == message
