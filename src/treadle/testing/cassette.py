"""Recorded traffic with a model provider, as a file that people can read and review."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from treadle.protocol.base import JsonValue

VERSION: Final = 1


class RecordedRequest(Struct, kw_only=True):
    """A recorded request, without headers because they carry keys."""

    method: str
    path: str
    # JSON if it parses, otherwise text.
    body: JsonValue = None


class RecordedResponse(Struct, kw_only=True, omit_defaults=True):
    """A recorded response."""

    status: int
    headers: dict[str, str] = {}
    # One of the two: JSON or text, or the events of a stream.
    body: JsonValue = None
    stream: list[str] | None = None
    # The connection broke after this content.
    is_cut: bool = False


class RecordedExchange(Struct):
    """One request and its response."""

    request: RecordedRequest
    response: RecordedResponse

    def finish(self, *, is_cut: bool) -> None:
        """Record whether the response ended early."""
        self.response = msgspec.structs.replace(self.response, is_cut=is_cut)


class Cassette(Struct):
    """Exchanges, in the order of their requests."""

    exchanges: list[RecordedExchange]
    version: int = VERSION

    def write(self, path: Path) -> None:
        """Replace the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not msgspec: models produce lone surrogates, which only `json` can write as escapes.
        text = json.dumps(msgspec.to_builtins(self), indent=2)
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(text + "\n", "utf-8")
        temporary.replace(path)


def load(path: Path) -> Cassette:
    """Read a recording.

    Raises:
        ValueError: the file is not a recording, or has another version.
        FileNotFoundError: the file does not exist.
    """
    try:
        cassette = msgspec.convert(json.loads(path.read_text("utf-8")), Cassette)
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(f"{path} is not a recording: {error}") from error
    if cassette.version != VERSION:
        raise ValueError(f"{path} has version {cassette.version}, expected {VERSION}")
    return cassette
