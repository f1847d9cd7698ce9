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
    """What the provider was asked; no headers, as keys travel in them."""

    method: str
    path: str
    # JSON where it is, else text.
    body: JsonValue = None


class RecordedResponse(Struct, kw_only=True, omit_defaults=True):
    """What the provider answered."""

    status: int
    headers: dict[str, str] = {}
    # One of the two: JSON or text, or the events of a stream.
    body: JsonValue = None
    stream: list[str] | None = None
    # The line broke after what is here.
    is_cut: bool = False


class RecordedExchange(Struct):
    """One request and its answer."""

    request: RecordedRequest
    response: RecordedResponse


class Cassette(Struct):
    """Exchanges, in the order in which they were begun."""

    exchanges: list[RecordedExchange]
    version: int = VERSION

    def write(self, path: Path) -> None:
        """Write the file anew."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not msgspec: half a surrogate pair, which models produce, is an escape in JSON only.
        text = json.dumps(msgspec.to_builtins(self), indent=2)
        whole = path.with_name(path.name + ".new")
        whole.write_text(text + "\n", "utf-8")
        whole.replace(path)


def load(path: Path) -> Cassette:
    """Read a recording.

    Raises:
        ValueError: the file is no recording, or one of another version.
        FileNotFoundError: there is no such file.
    """
    try:
        cassette = msgspec.convert(json.loads(path.read_text("utf-8")), Cassette)
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(f"{path} is no recording: {error}") from error
    if cassette.version != VERSION:
        raise ValueError(f"{path} is of version {cassette.version}, this is {VERSION}")
    return cassette
