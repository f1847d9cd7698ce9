"""Converts user input to items for the model."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET

from treadle.engine.conversation import instructions
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
from treadle.sandbox.paths import real
from treadle.sandbox.reading import NotReadable, read_for_model
from treadle.support.concurrency.workers import Workers
from treadle.support.ids import uuid7
from treadle.support.text.base64_chunks import encode_base64

logger = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""The maximum total size of the files of one input."""

FileUserInput: TypeAlias = LocalImageUserInput | LocalAudioUserInput | SkillUserInput
"""Input that names a file to read."""

InputFiles: TypeAlias = Mapping[int, str]
"""The contents of an input's files, by position in the input: data URLs, or text."""

NO_FILES: Final[InputFiles] = {}


class Readable(NamedTuple):
    """Which files an input may name."""

    may_read: Callable[[str], bool]
    """Whether commands may read a file."""
    skills: Callable[[], Collection[str]]
    """Returns the files of the enabled skills, without links; other skills are left out."""
    may_follow: Callable[[str], bool] | None = None
    """For input of the user, who may name any file: whether a link is the user's own."""


MAX_TOOL_NAME: Final = 64
# Characters that providers reject in the name of a tool.
_INVALID_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


def message(role: str, *texts: str) -> ModelItem:
    """Return a plain text message for the model."""
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content}


async def read_files(
    content: Sequence[UserInput], workers: Workers, readable: Callable[[], Readable]
) -> InputFiles:
    """Read the files that an input names, in a worker thread.

    Raises:
        NotReadable: the model named a file that its commands may not read.
        InvalidInput: a file cannot be read, is not a regular file, or is too large.
    """
    if not any(isinstance(part, FileUserInput) for part in content):
        return {}
    return await workers.run(_read_files, content, readable())


def to_model_items(content: Sequence[UserInput], files: InputFiles) -> list[ModelItem]:
    """Return the skills that the input names, then the user's message.

    Raises:
        InvalidInput: an image has neither a URL nor a file id.
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
                image: JsonValue = {"type": "input_image", "image_url": files[position]}
                parts += _labelled(part.path, image)
            case AudioUserInput():
                parts.append(_audio(part, path))
            case LocalAudioUserInput():
                parts.append({"type": "input_audio", "audio_url": files[position]})
            case SkillUserInput():
                if position in files:
                    text = instructions.skill(part.name, part.path, files[position])
                    skills.append(message("user", text))
            case _:
                pass  # the text already contains what a mention refers to
    if parts:
        return [*skills, {"type": "message", "role": "user", "content": parts}]
    return skills


def from_tool_output(
    tool_output: TurnToolOutput,
) -> tuple[FunctionCallOutputThreadItem, list[ModelItem]]:
    """Return the output of a client tool as clients see it and as the model sees it.

    The model sees a call that it did not make: providers reject an output without a call, and a
    message would have the authority of the user.
    """
    item = FunctionCallOutputThreadItem(
        id=f"fco_{uuid7()}",
        name=tool_output.name,
        output=tool_output.output,
        namespace=tool_output.namespace,
    )
    call: ModelItem = {
        "type": "function_call",
        "call_id": item.id,
        "name": _INVALID_IN_NAME.sub("_", tool_output.name)[:MAX_TOOL_NAME],
        "arguments": "{}",
    }
    if tool_output.namespace is not None:
        call["namespace"] = tool_output.namespace
    output: JsonValue = msgspec.to_builtins(tool_output.output)
    return item, [call, {"type": "function_call_output", "call_id": item.id, "output": output}]


def _image(part: ImageUserInput, path: str) -> JsonValue:
    if isinstance(part.url, str):
        image: dict[str, JsonValue] = {"type": "input_image", "image_url": part.url}
    elif isinstance(part.file_id, str):
        image = {"type": "input_image", "file_id": part.file_id}
    else:
        raise InvalidInput(f"{path}.url", "an image requires a `url` or a `fileId`")
    if part.detail not in (UNSET, None):
        image["detail"] = part.detail
    return image


def _audio(part: AudioUserInput, path: str) -> JsonValue:
    if isinstance(part.url, str):
        return {"type": "input_audio", "audio_url": part.url}
    if isinstance(part.file_id, str):
        return {"type": "input_audio", "file_id": part.file_id}
    raise InvalidInput(f"{path}.url", "audio requires a `url` or a `fileId`")


def _labelled(path: str, image: JsonValue) -> list[JsonValue]:
    """Return an image between two tags that give the model its file name."""
    return [
        {"type": "input_text", "text": f'<image name="{Path(path).name}">'},
        image,
        {"type": "input_text", "text": "</image>"},
    ]


def _read_files(content: Sequence[UserInput], readable: Readable) -> InputFiles:
    files: dict[int, str] = {}
    remaining = MAX_FILE_BYTES
    enabled = readable.skills() if any(isinstance(part, SkillUserInput) for part in content) else ()
    for position, part in enumerate(content):
        if not isinstance(part, FileUserInput):
            continue
        field = f"input[{position}].path"
        if isinstance(part, SkillUserInput):
            found = _read_skill(part.path, field, remaining, enabled)
            if found is None:
                logger.warning("unknown or disabled skill left out", extra={"path": part.path})
                continue
            data = found
        else:
            data = _read(part.path, field, remaining, readable)
        remaining -= len(data)
        match part:
            case SkillUserInput():
                files[position] = data.decode("utf-8", "replace")
            case LocalImageUserInput():
                files[position] = _data_url(part.path, data, "image/png")
            case LocalAudioUserInput():
                files[position] = _data_url(part.path, data, "audio/wav")
    return files


def _read_skill(path: str, field: str, limit: int, enabled: Collection[str]) -> bytes | None:
    """Read a skill; `None` if the path does not lead to one of the enabled ones."""
    # A command may replace the file by a link at any moment, so the open file is checked as well.
    readable = Readable(lambda place: real(place) in enabled, lambda: enabled)
    try:
        return _read(path, field, limit, readable) if real(path) in enabled else None
    except (NotReadable, ValueError):
        return None


def _data_url(path: str, data: bytes, fallback: str) -> str:
    import mimetypes  # large, and images are rare

    kind = mimetypes.guess_type(path)[0] or fallback
    return f"data:{kind};base64,{encode_base64(data)}"


def _read(path: str, field: str, limit: int, readable: Readable) -> bytes:
    too_large = f"{path!r} is too large: the files of one input may have {MAX_FILE_BYTES} bytes"
    try:
        data, size = read_for_model(path, limit, readable.may_read, readable.may_follow)
    except NotReadable as error:
        if readable.may_follow is None:
            raise
        reason = "the sandbox does not allow reading what its links lead to"
        raise InvalidInput(field, f"cannot read {path!r}: {reason}") from error
    except OSError as error:
        raise InvalidInput(field, f"cannot read {path!r}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidInput(field, f"invalid path {path!r}: {error}") from error
    if size > limit:
        raise InvalidInput(field, too_large)
    return data
