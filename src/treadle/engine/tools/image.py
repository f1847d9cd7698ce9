"""The `view_image` tool, and the detection of image formats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.engine.tools.registry import Output, ToolCall, ToolRefused, read_arguments
from treadle.model.base import ModelTool
from treadle.model.catalog import traits_of
from treadle.protocol.base import JsonValue
from treadle.protocol.item import ImageViewThreadItem
from treadle.sandbox.reading import NotReadable, read_for_model
from treadle.support.files.reading import NotRegularFile
from treadle.support.text.base64_chunks import decode_base64_strictly, encode_base64

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn
    from treadle.sandbox.policy import Confinement

MAX_IMAGE_BYTES: Final = 20 * 1024 * 1024
"""Providers reject requests with larger images."""

IMAGE_OMITTED: Final = "image content omitted because you do not support image input"
IMAGE_UNREADABLE: Final = "image content omitted because it could not be processed"
UNREADABLE: Final = "unable to process image: invalid or unsupported image data"
NO_IMAGES: Final = "view_image is not allowed because you do not support image inputs"
_DETAILS: Final = ("high", "original")


class _Arguments(msgspec.Struct):
    path: str
    detail: str | None = None


class ViewImage:
    """Shows the model an image file."""

    name = "view_image"

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread

    def spec(self) -> ModelTool:
        """The definition that the model sees."""
        properties: dict[str, JsonValue] = {
            "path": {"type": "string", "description": "Path of the image file."}
        }
        if traits_of(self._thread.settings.model).is_modern:
            properties["detail"] = {
                "type": "string",
                "enum": list(_DETAILS),
                "description": "`high` (default) or `original`, which keeps the exact resolution.",
            }
        return {
            "type": "function",
            "name": self.name,
            "description": "View an image file. Use it when seeing the image would help.",
            "strict": False,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": ["path"],
                "additionalProperties": False,
            },
        }

    async def run(self, call: ToolCall, turn: ActiveTurn) -> Output:
        """Return the image to the model, and publish an item."""
        settings = self._thread.settings_of(turn)
        if not traits_of(settings.model).takes_images:
            raise ToolRefused(NO_IMAGES)
        arguments = read_arguments(call, _Arguments)
        if arguments.detail not in (None, *_DETAILS):
            raise ToolRefused(
                "view_image.detail only supports `high` or `original`; omit `detail` for default "
                f"high resized behavior, got `{arguments.detail}`"
            )
        path = _absolute(settings.cwd, arguments.path)
        confinement = self._thread.approvals.confinement(turn)
        url = await self._thread.services.image_workers.run(_load, Path(path), confinement)
        turn.complete_item(ImageViewThreadItem(id=call.id, path=path))
        return [{"type": "input_image", "image_url": url, "detail": arguments.detail or "high"}]


def is_image_url(url: str) -> bool:
    """Whether a data URL contains an image that models can read."""
    head, _, body = url.partition(",")
    if not head.endswith(";base64"):
        return False
    try:
        data = decode_base64_strictly(body)
    except ValueError:
        return False
    return media_type(data) is not None


def media_type(data: bytes) -> str | None:
    """The media type of an image that models can read; `None` for other or truncated data."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png" if b"IEND" in data[-16:] else None
    if data.startswith(b"\xff\xd8\xff"):
        # Some cameras add other data after the end of the image.
        return "image/jpeg" if b"\xff\xd9" in data else None
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif" if b"\x3b" in data[-16:] else None
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        is_whole = len(data) >= int.from_bytes(data[4:8], "little")
        return "image/webp" if is_whole else None
    return None


def _absolute(cwd: str, path: str) -> str:
    return os.path.normpath(Path(cwd, path))


def _load(path: Path, confinement: Confinement) -> str:
    """Read an image as a data URL."""
    try:
        data = _read(path, confinement)
    except NotRegularFile as error:
        raise ToolRefused(f"image path `{path}` is not a file") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ToolRefused(f"unable to locate image at `{path}`: {error.strerror}") from error
    except (OSError, ValueError) as error:
        raise ToolRefused(f"unable to read image at `{path}`: {error}") from error
    kind = media_type(data)
    if kind is None:
        raise ToolRefused(UNREADABLE)
    return f"data:{kind};base64,{encode_base64(data)}"


def _read(path: Path, confinement: Confinement) -> bytes:
    try:
        data, size = read_for_model(str(path), MAX_IMAGE_BYTES, confinement.may_read)
    except NotReadable as error:
        raise ToolRefused(f"the sandbox does not allow reading `{path}`") from error
    if size > MAX_IMAGE_BYTES:
        raise ToolRefused(
            f"image at `{path}` is too large: {size} bytes, expected at most {MAX_IMAGE_BYTES}"
        )
    return data
