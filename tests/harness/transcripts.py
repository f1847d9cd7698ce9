"""Transcripts of conversations: what a server sent, and the parts of it that tests compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.harness.placeholders import placeholders
from tests.harness.threads import keys, line_of
from treadle.protocol.base import JsonValue

UNCOMPARED_METHODS = frozenset(
    {
        "account/rateLimits/updated",  # sent to every client, in no fixed place
        "deprecationNotice",  # nothing that it speaks of is deprecated here
        "remoteControl/status/changed",  # no remote control
        "thread/readState/changed",  # compared in `e2e/reference/test_read_states.py`
        "thread/tokenUsage/updated",  # repeated by the reference at times; tested elsewhere
        "warning",  # once per thread here, in every turn there
        "configWarning",
    }
)


@dataclass(frozen=True)
class Transcript:
    """What a server sent to its client, and to its model about its calls, with placeholders."""

    messages: list[JsonValue]
    outputs: dict[str, JsonValue]

    @classmethod
    def of(
        cls, messages: list[JsonValue], outputs: JsonValue, names: Mapping[str, str]
    ) -> Transcript:
        """Return the transcript of these messages; `names` are replaced by placeholders."""
        kept = [each for each in messages if each.get("method") not in UNCOMPARED_METHODS]
        settled = _reply_first(_without_repeats(kept))
        return cls(placeholders(settled, names), placeholders(outputs, names))

    @classmethod
    def from_json(cls, document: JsonValue) -> Transcript:
        """Read a recording."""
        return cls(document["messages"], document["outputs"])

    def to_json(self) -> JsonValue:
        """Return the document to record."""
        return {"messages": self.messages, "outputs": self.outputs}

    def compared(self, loose: frozenset[str], ignored: frozenset[str]) -> JsonValue:
        """Return the parts that comparisons use: lines, keys by line, values, and outputs."""
        return {
            "lines": [line for line in lines(self.messages) if line not in loose],
            # A loose line may also be missing.
            "keys": {
                line: sorted(names)
                for line, names in keys_by_line(self.messages).items()
                if line not in loose
            },
            "values": tool_values(self.messages, ignored),
            "outputs": self.outputs,
        }


def _without_repeats(messages: list[JsonValue]) -> list[JsonValue]:
    """Leave out repeated diffs of a turn: the reference sends each up to four times."""
    last_diff: JsonValue = None
    kept: list[JsonValue] = []
    for message in messages:
        if message.get("method") == "turn/diff/updated":
            if message["params"] == last_diff:
                continue
            last_diff = message["params"]
        kept.append(message)
    return kept


_BEFORE_EVENTS = ("thread/status/changed", "thread/settings/updated")


def _reply_first(messages: list[JsonValue]) -> list[JsonValue]:
    """Put the answer to turn/start before the turn's events: the reference's may come later."""
    settled: list[JsonValue] = []
    answered: set[str] = set()
    for message in messages:
        turn = (message.get("result") or {}).get("turn")
        place = len(settled)
        # A second start that joins the turn is answered with the same id, in its own place.
        if turn is not None and turn["id"] not in answered:
            answered.add(turn["id"])
            places = [i for i, each in enumerate(settled) if _turn_of(each) == turn["id"]]
            place = min(places, default=place)
            while place and settled[place - 1].get("method") in _BEFORE_EVENTS:
                place -= 1
        settled.insert(place, message)
    return settled


def _turn_of(message: JsonValue) -> JsonValue:
    params = message.get("params") or {}
    return params.get("turnId") or (params.get("turn") or {}).get("id")


def lines(messages: Sequence[JsonValue]) -> list[str]:
    """The messages in short form."""
    return [line_of(message) for message in messages]


def keys_by_line(messages: Sequence[JsonValue]) -> dict[str, set[str]]:
    """The keys of all messages with the same short form."""
    found: dict[str, set[str]] = {}
    for message in messages:
        found.setdefault(line_of(message), set()).update(keys(message))
    return found


VOLATILE = frozenset(
    {"id", "seq", "emittedAtMs", "processId", "durationMs", "startedAtMs", "completedAtMs"}
    # Not in releases before 0.169.0.
    | {"contentTokenCount"}
)
_TOOL_ITEMS = frozenset(
    {"commandExecution", "fileChange", "dynamicToolCall", "imageView", "mcpToolCall"}
)


def tool_values(
    messages: Sequence[JsonValue], ignored: frozenset[str] = frozenset()
) -> list[JsonValue]:
    """What tools did and clients were asked, without what differs from run to run."""
    ignored |= VOLATILE
    return [_without_keys(each, ignored) for each in messages if _has_compared_values(each)]


def _has_compared_values(message: JsonValue) -> bool:
    method, params = message.get("method", ""), message.get("params") or {}
    if method in ("item/started", "item/completed"):
        return params["item"]["type"] in _TOOL_ITEMS
    return ("id" in message and "method" in message) or method == "turn/diff/updated"


def _without_keys(value: JsonValue, ignored: frozenset[str]) -> JsonValue:
    if isinstance(value, dict):
        return {k: _without_keys(v, ignored) for k, v in value.items() if k not in ignored}
    if isinstance(value, list):
        return [_without_keys(each, ignored) for each in value]
    return value
