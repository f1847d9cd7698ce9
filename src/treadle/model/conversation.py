"""Converts a history to alternating messages, for providers that require them.

They reject calls without outputs, outputs without calls, and messages in an unexpected order;
histories contain all of these after interruptions and rollbacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from treadle.model.base import ModelItem
from treadle.protocol.base import JsonValue

CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
OUTPUTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output"}
)


class Said(Struct, frozen=True):
    """A message of the user, the assistant or the developer (in the system role)."""

    role: str
    parts: list[JsonValue]


class Called(Struct, frozen=True):
    """Reasoning, text and calls of one assistant message, in that order, with the outputs."""

    items: list[ModelItem]
    outputs: dict[str, JsonValue]

    @property
    def reasoning(self) -> list[ModelItem]:
        """The reasoning."""
        return [item for item in self.items if item.get("type") == "reasoning"]

    @property
    def text(self) -> str:
        """The text."""
        texts = (text_of(item.get("content")) for item in self.items if _is_message(item))
        return "\n\n".join(text for text in texts if text)

    @property
    def calls(self) -> list[ModelItem]:
        """The calls."""
        return [item for item in self.items if item.get("type") in CALLS]

    def output_of(self, call: ModelItem) -> JsonValue:
        """Return the output of a call; an interrupted call has none."""
        return self.outputs.get(str(call.get("call_id")), "aborted")


def conversation(history: Sequence[ModelItem]) -> Iterator[Said | Called]:
    """Split a history into messages; every assistant message becomes a `Called`."""
    answers = {
        str(item.get("call_id")): item.get("output")
        for item in history
        if item.get("type") in OUTPUTS
    }
    items: list[ModelItem] = []
    is_answered = False
    for item in history:
        kind = item.get("type")
        is_from_others = _is_message(item) and item.get("role") != "assistant"
        is_own = kind == "reasoning" or kind in CALLS or (kind == "message" and not is_from_others)
        # Outputs go with their calls; later assistant text is a new message.
        if items and (is_from_others or (is_own and is_answered)):
            yield from _called(items, answers)
            items = []
        if is_from_others:
            parts = item.get("content")
            role = "system" if item.get("role") in ("developer", "system") else "user"
            yield Said(role, parts if isinstance(parts, list) else [_text_part(parts)])
        elif is_own:
            items.append(item)
        is_answered = kind in OUTPUTS
    yield from _called(items, answers)


def leading_system_texts(turns: Sequence[Said | Called]) -> list[str]:
    """Return the developer messages before all others."""
    texts = []
    for turn in turns:
        if not isinstance(turn, Said) or turn.role != "system":
            break
        texts.append(text_of(turn.parts))
    return texts


def _called(items: list[ModelItem], answers: dict[str, JsonValue]) -> Iterator[Called]:
    called = Called(items, answers)
    # Reasoning alone does not make a message.
    if called.text or called.calls:
        yield called


def _is_message(item: ModelItem) -> bool:
    return item.get("type") == "message"


def text_of(content: JsonValue) -> str:
    """Return the text in a message's content or a tool's output."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(part for part in parts if isinstance(part, str))


def images_of(content: JsonValue) -> list[str]:
    """Return the URLs, of any scheme, of the images in a content."""
    if not isinstance(content, list):
        return []
    urls = (
        part.get("image_url")
        for part in content
        if isinstance(part, dict) and part.get("type") == "input_image"
    )
    return [url for url in urls if isinstance(url, str)]


def raw_reasoning_of(item: ModelItem) -> str:
    """Return the raw text of a reasoning item."""
    return text_of(item.get("content"))


def _text_part(text: JsonValue) -> JsonValue:
    return {"type": "input_text", "text": text if isinstance(text, str) else ""}
