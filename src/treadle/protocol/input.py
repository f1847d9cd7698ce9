"""The parts of a user's input."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from treadle.protocol.base import ByteRange, SnakeValue, Value

AdditionalContextKind = Literal["untrusted", "application"]
"""`application` comes from the client itself, `untrusted` from any other source."""


class AdditionalContextEntry(Value, frozen=True):
    """Context that the client adds to a turn, and how far the model may trust it."""

    kind: AdditionalContextKind
    value: str
    # A label for context that is not trusted.
    name: str | UnsetType | None = UNSET


ImageDetail = Literal["auto", "low", "high", "original"]


class TextElement(Value, frozen=True):
    """A range of the text that a client renders specially, such as a chip for a file."""

    # Counted in UTF-8 bytes of the text, not in characters.
    byte_range: ByteRange
    placeholder: str | None = None


class TextUserInput(SnakeValue, tag="text", frozen=True):
    """Text from the user; note that `text_elements` is spelled in snake_case."""

    text: str
    text_elements: list[TextElement] = []


class ImageUserInput(Value, tag="image", frozen=True):
    """An image, as a data URL or as the id of an uploaded file."""

    detail: ImageDetail | UnsetType | None = UNSET
    url: str | UnsetType | None = UNSET
    file_id: str | UnsetType | None = UNSET


class LocalImageUserInput(Value, tag="localImage", frozen=True):
    """An image in a file that the server can read."""

    path: str
    detail: ImageDetail | UnsetType | None = UNSET


class AudioUserInput(Value, tag="audio", frozen=True):
    """Audio, as a URL or as the id of an uploaded file."""

    url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET


class LocalAudioUserInput(Value, tag="localAudio", frozen=True):
    """Audio in a file that the server can read."""

    path: str


class SkillUserInput(Value, tag="skill", frozen=True):
    """A skill to follow; its instructions are given to the model at once."""

    name: str
    path: str


class MentionUserInput(Value, tag="mention", frozen=True):
    """An app (`app://id`) or a plugin (`plugin://name@marketplace`) that the text mentions."""

    name: str
    path: str


UserInput = (
    TextUserInput
    | ImageUserInput
    | LocalImageUserInput
    | AudioUserInput
    | LocalAudioUserInput
    | SkillUserInput
    | MentionUserInput
)
