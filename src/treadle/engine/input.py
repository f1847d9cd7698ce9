"""From what a user puts into a turn to what the model reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET

from treadle.engine import instructions
from treadle.engine.errors import InvalidInput
from treadle.model.base import ModelItem
from treadle.protocol.base import JsonValue
from treadle.protocol.input import (
    AudioUserInput,
    ImageUserInput,
    LocalAudioUserInput,
    LocalImageUserInput,
    SkillUserInput,
    TextUserInput,
    UserInput,
)
from treadle.protocol.item import FunctionCallOutputThreadItem
from treadle.protocol.tool import TurnToolOutput
from treadle.support.files import read_file
from treadle.support.ids import uuid7

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
MAX_TOOL_NAME: Final = 64
# What providers do not take in the name of a tool.
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


def message(role: str, *texts: str) -> ModelItem:
    """A message of plain text, as the model reads it."""
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content}


def to_model_items(content: Sequence[UserInput]) -> list[ModelItem]:
    """The user's message, and before it the skills that it names.

    Raises:
        InvalidInput: a file cannot be read, or an image is nowhere.
    """
    parts: list[JsonValue] = []
    skills: list[ModelItem] = []
    for position, part in enumerate(content):
        path = f"input[{position}]"
        match part:
            case TextUserInput():
                parts.append({"type": "input_text", "text": part.text})
            case ImageUserInput():
                parts.append(_image(part, path))
            case LocalImageUserInput():
                url = _data_url(part.path, f"{path}.path", "image/png")
                parts += _labelled(part.path, {"type": "input_image", "image_url": url})
            case AudioUserInput():
                parts.append({"type": "input_audio", "audio_url": part.url})
            case LocalAudioUserInput():
                url = _data_url(part.path, f"{path}.path", "audio/wav")
                parts.append({"type": "input_audio", "audio_url": url})
            case SkillUserInput():
                skills.append(_skill(part, f"{path}.path"))
            case _:
                pass  # a mention points at something that its text already names
    if parts:
        return [*skills, {"type": "message", "role": "user", "content": parts}]
    return skills


def from_outside(given: TurnToolOutput) -> tuple[FunctionCallOutputThreadItem, list[ModelItem]]:
    """What a tool of the client's says, as clients see it and as the model does.

    The model sees a call and its output, though it has not called: no provider takes an output
    alone, and as a message it would have the authority of the user.
    """
    item = FunctionCallOutputThreadItem(
        id=f"fco_{uuid7()}", name=given.name, output=given.output, namespace=given.namespace
    )
    call: ModelItem = {
        "type": "function_call",
        "call_id": item.id,
        "name": _NO_NAME.sub("_", given.name)[:MAX_TOOL_NAME],
        "arguments": "{}",
    }
    if given.namespace is not None:
        call["namespace"] = given.namespace
    output: JsonValue = msgspec.to_builtins(given.output)
    return item, [call, {"type": "function_call_output", "call_id": item.id, "output": output}]


def _image(part: ImageUserInput, path: str) -> JsonValue:
    if isinstance(part.url, str):
        image: dict[str, JsonValue] = {"type": "input_image", "image_url": part.url}
    elif isinstance(part.file_id, str):
        image = {"type": "input_image", "file_id": part.file_id}
    else:
        raise InvalidInput(f"{path}.url", "an image needs a url or a fileId")
    if part.detail not in (UNSET, None):
        image["detail"] = part.detail
    return image


def _labelled(path: str, image: JsonValue) -> list[JsonValue]:
    """A picture between two marks, so that the model can tell which file it is."""
    return [
        {"type": "input_text", "text": f'<image name="{Path(path).name}">'},
        image,
        {"type": "input_text", "text": "</image>"},
    ]


def _data_url(path: str, field: str, fallback: str) -> str:
    import base64  # pictures are rare, and these two are not small
    import mimetypes

    kind = mimetypes.guess_type(path)[0] or fallback
    return f"data:{kind};base64,{base64.b64encode(_read(path, field)).decode()}"


def _skill(part: SkillUserInput, field: str) -> ModelItem:
    body = _read(part.path, field).decode("utf-8", "replace")
    return message("user", instructions.skill(part.name, part.path, body))


def _read(path: str, field: str) -> bytes:
    try:
        data = read_file(path, MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(field, f"cannot read {path!r}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(field, f"{path!r} is larger than {MAX_FILE_BYTES} bytes")
    return data
