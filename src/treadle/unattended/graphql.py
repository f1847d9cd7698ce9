"""A tool that sends GraphQL operations to one service, with a token hidden from the model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.client.tools import Tool
from treadle.protocol.base import JsonValue
from treadle.protocol.tool import (
    DynamicToolCallResponse,
    InputTextDynamicToolCallOutputContentItem,
)
from treadle.support.text.secrets import Secrets, secrets_of_headers, secrets_of_url
from treadle.support.text.urls import REDIRECTS, origin_of, redirect_target, without_queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.support.http.connection import ClientResponse

LINEAR: Final = "https://api.linear.app/graphql"
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
_DESCRIPTION: Final = (
    "Execute one GraphQL query or mutation against {service}, with the credentials of the session."
)
# An unclosed string is a token too: searching for the end of each takes quadratic time.
_TOKENS: Final = re.compile(
    r'''"""(?:\\"""|(?!""").)*+(?:""")?+|"(?:\\.|[^"\\\n])*+"?+'''
    r"|#[^\n\r]*|[{}()\[\]]|[_A-Za-z]\w*",
    re.DOTALL,
)
_OPERATIONS: Final = frozenset({"query", "mutation", "subscription"})
_OPENING: Final = ("(", "[", "{")
_CLOSING: Final = (")", "]", "}")
_IGNORED: Final = ('"', "#")  # strings and comments


class InvalidQuery(ValueError):
    """The arguments are not a single operation."""


def graphql_tool(
    endpoint: str = LINEAR,
    token: str | Callable[[], str | None] | None = None,
    *,
    name: str = "linear_graphql",
    service: str = "Linear",
    headers: Mapping[str, str] | None = None,
    seconds: float = 30.0,
) -> Tool:
    """Return a tool `{query, variables?}` that posts one operation and returns the response.

    A response with top-level errors is a failed call whose output is the whole response; a request
    that cannot be sent is a failed call too. `token` goes into `Authorization` unchanged.
    """

    async def run(arguments: JsonValue) -> DynamicToolCallResponse:
        try:
            body = read_arguments(arguments)
            request_headers = {"Authorization": _resolve_token(token, name), **(headers or {})}
            answer = await _post(endpoint, body, request_headers, seconds)
        except InvalidQuery as error:
            return _response({"error": {"message": str(error)}}, is_good=False)
        except (OSError, TimeoutError, ValueError) as error:
            message = f"the request failed: {str(error) or type(error).__name__}"
            return _response({"error": {"message": message}}, is_good=False)
        has_errors = isinstance(answer, dict) and bool(answer.get("errors"))
        return _response(answer, is_good=not has_errors)

    return Tool(
        name=name,
        description=_DESCRIPTION.format(service=service),
        input_schema={
            "type": "object",
            "additionalProperties": False,
            "required": ["query"],
            "properties": {
                "query": {"type": "string", "description": "One GraphQL operation."},
                "variables": {
                    "type": ["object", "null"],
                    "description": "The values of the operation's variables.",
                    "additionalProperties": True,
                },
            },
        },
        function=run,
    )


def read_arguments(arguments: JsonValue) -> JsonValue:
    """Return the body to post for `{query, variables?}` or a bare query.

    Raises:
        InvalidQuery: no query, several operations, or variables that are not an object.
    """
    fields = {"query": arguments} if isinstance(arguments, str) else arguments
    if not isinstance(fields, Mapping):
        raise InvalidQuery("expected an object with `query` and optionally `variables`")
    query, variables = fields.get("query"), fields.get("variables")
    if not isinstance(query, str) or not query.strip():
        raise InvalidQuery("`query` must be a non-empty string")
    if variables is not None and not isinstance(variables, Mapping):
        raise InvalidQuery("`variables` must be an object")
    kinds = operations(query)
    if len(kinds) != 1:
        raise InvalidQuery(f"`query` must hold exactly one operation, not {len(kinds)}")
    if kinds[0] == "subscription":
        raise InvalidQuery("a subscription cannot be answered by one response")
    return {"query": query.strip(), "variables": dict(variables or {})}


def operations(query: str) -> Sequence[str]:
    """Return the kinds of the operations in a document, without fragments."""
    kinds: list[str] = []
    depth = 0
    is_begun = False  # between the first token of a definition and the end of its braces
    for lexeme in _TOKENS.findall(query):
        if lexeme in _OPENING:
            if lexeme == "{" and depth == 0 and not is_begun:
                kinds.append("query")
                is_begun = True
            depth += 1
        elif lexeme in _CLOSING:
            depth -= 1
            is_begun = is_begun and not (lexeme == "}" and depth == 0)
        elif depth == 0 and not is_begun and lexeme[0] not in _IGNORED:
            is_begun = True
            if lexeme in _OPERATIONS:
                kinds.append(lexeme)
    return kinds


def _resolve_token(token: str | Callable[[], str | None] | None, name: str) -> str:
    value = token() if callable(token) else token
    if not value:
        raise InvalidQuery(f"{name} has no token: set one where the session is started")
    return value


async def _post(
    endpoint: str, body: JsonValue, headers: Mapping[str, str], seconds: float
) -> JsonValue:
    from treadle.support.http.client import HttpClient
    from treadle.support.http.errors import HttpError

    # The model must not read the token, even where a service quotes its request.
    secrets = Secrets([*secrets_of_headers(headers), *secrets_of_url(endpoint)])
    client = HttpClient(connect_seconds=seconds)
    sent = {"content-type": "application/json", "accept-encoding": "identity", **headers}
    try:
        async with asyncio.timeout(seconds):
            # A redirect is not followed: it would take the token to another host.
            answer = await client.request(
                "POST", endpoint, headers=sent, body=msgspec.json.encode(body)
            )
            body_text = (await _read(answer)).decode("utf-8", "replace")
            # In a thread: a few megabytes with many escapes take seconds.
            text = await asyncio.to_thread(secrets.redact, body_text, limit=None)
    except HttpError as error:
        message = without_queries(str(error)) or type(error).__name__
        raise OSError(secrets.redact(message)) from None
    finally:
        client.close()
    if answer.status in REDIRECTS:
        target = redirect_target(endpoint, answer.headers.get("location"))
        where = "an unknown location" if target is None else origin_of(target)
        raise OSError(
            f"redirect to {secrets.redact(where)} was not followed (HTTP {answer.status})"
        )
    if answer.status != 200:
        raise OSError(f"HTTP status {answer.status}: {text[:500]}")
    try:
        document: JsonValue = msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError("the response is nested too deeply") from error
    return document


async def _read(answer: ClientResponse) -> bytes:
    body = bytearray()
    while chunk := await answer.read():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise OSError(f"the response has more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _response(document: JsonValue, *, is_good: bool) -> DynamicToolCallResponse:
    text = msgspec.json.encode(document).decode()
    return DynamicToolCallResponse(
        [InputTextDynamicToolCallOutputContentItem(text)], success=is_good
    )
