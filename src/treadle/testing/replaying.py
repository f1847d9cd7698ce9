"""A provider that answers from a recording, offline, and reports differences."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle.protocol.base import JsonValue
from treadle.testing.cassette import RecordedExchange, RecordedResponse, load
from treadle.testing.comparing import PROMPTS, differences, normalised
from treadle.testing.provider import Provider, ProviderRequest, serve
from treadle.testing.redaction import Redactor

if TYPE_CHECKING:
    from aiohttp.web import Request, StreamResponse

_SHOWN: Final = 5


class CassetteMismatch(Exception):
    """A request was not recorded; `differences` compares it with the nearest recorded one."""

    def __init__(self, message: str, differences: Collection[str] = ()) -> None:
        super().__init__(message)
        self.differences = list(differences)


class Player(Provider):
    """Answers each request with its recorded response."""

    def __init__(self, path: Path, ignore: Collection[str]) -> None:
        super().__init__(self.play)
        self.path = path
        self.mismatches: list[CassetteMismatch] = []
        """The requests that could not be answered."""
        self._ignore = ignore
        self._redactor = Redactor({})
        self._unplayed = load(path).exchanges
        self._size = len(self._unplayed)

    @property
    def unplayed(self) -> list[RecordedExchange]:
        """The recorded exchanges that were not played yet."""
        return list(self._unplayed)

    async def play(self, request: Request, received: ProviderRequest) -> StreamResponse:
        """Answer a request."""
        from aiohttp.web import Response, json_response

        match = self._find(received)
        if isinstance(match, RecordedExchange):
            return await _play(request, match.response)
        if received.method == "GET":
            # Optional requests, such as lists of models.
            return Response(status=404)
        self.mismatches.append(match)
        error = {"type": "invalid_request_error", "message": str(match)}
        return json_response({"type": "error", "error": error}, status=400)

    def _find(self, received: ProviderRequest) -> RecordedExchange | CassetteMismatch:
        path = self._redactor.path(received.path)
        what = f"{received.method} {path}"
        candidates = [
            each
            for each in self._unplayed
            if (each.request.method, each.request.path) == (received.method, path)
        ]
        body = self._normalised(self._redactor.value(_document(received.body)))
        nearest: list[str] = []
        for exchange in candidates:
            deviations = list(differences(self._normalised(exchange.request.body), body))
            if not deviations:
                if received.method != "GET":
                    self._unplayed.remove(exchange)
                return exchange
            nearest = nearest or deviations
        if not candidates:
            left = f"{len(self._unplayed)} of {self._size} exchanges remain, none matches"
            return CassetteMismatch(f"{self.path.name} has no (more) {what}: {left}")
        lines = [*islice(nearest, _SHOWN)]
        if len(nearest) > _SHOWN:
            lines.append(f"and {len(nearest) - _SHOWN} more")
        return CassetteMismatch(
            f"{what} is not as recorded in {self.path.name}:\n  " + "\n  ".join(lines), nearest
        )

    def _normalised(self, body: JsonValue) -> JsonValue:
        return normalised(body, self._ignore)


@asynccontextmanager
async def replay(path: str | Path, *, ignore: Collection[str] = PROMPTS) -> AsyncIterator[Player]:
    """Answer from a recording until the block ends: use `player.base_url` as the provider's URL.

    A request must be as recorded except for ids, times, temporary paths, and the members in
    `ignore`. They default to prompts and tools, which change with every release.

    Raises:
        CassetteMismatch: at the end of the block, if a request was not recorded.
        ValueError: the file is not a recording.
    """
    async with serve(Player(Path(path), ignore)) as player:
        try:
            yield player
        finally:
            if player.mismatches:
                # The mismatch is the cause of other errors in the block.
                raise player.mismatches[0]


async def _play(request: Request, recorded: RecordedResponse) -> StreamResponse:
    from aiohttp.web import Response, StreamResponse

    if recorded.stream is None and not recorded.is_cut:
        text = recorded.body if isinstance(recorded.body, str) else json.dumps(recorded.body)
        return Response(status=recorded.status, headers=recorded.headers, body=text.encode())
    response = StreamResponse(status=recorded.status, headers=recorded.headers)
    await response.prepare(request)
    for event in recorded.stream or ():
        await response.write(event.encode())
    if recorded.is_cut and request.transport is not None:
        request.transport.close()
    return response


def _document(body: bytes) -> JsonValue:
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
