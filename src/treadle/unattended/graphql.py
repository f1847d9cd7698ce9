"""A tool that lets the model speak GraphQL to one service, with a token it never sees."""

from __future__ import annotations

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

LINEAR: Final = "https://api.linear.app/graphql"
_DESCRIPTION: Final = (
    "Execute one GraphQL query or mutation against {service}, with the credentials of the session."
)
# A text that is not closed is one, too: to look for the end of each takes quadratic time.
_WORDS: Final = re.compile(
    r'''"""(?:\\"""|(?!""").)*+(?:""")?+|"(?:\\.|[^"\\\n])*+"?+'''
    r"|#[^\n\r]*|[{}()\[\]]|[_A-Za-z]\w*",
    re.DOTALL,
)
_OPERATIONS: Final = frozenset({"query", "mutation", "subscription"})
_OPENING: Final = ("(", "[", "{")
_CLOSING: Final = (")", "]", "}")
_SILENT: Final = ('"', "#")  # texts and comments


class InvalidQuery(ValueError):
    """The arguments are no single operation."""


def graphql_tool(
    endpoint: str = LINEAR,
    token: str | Callable[[], str | None] | None = None,
    *,
    name: str = "linear_graphql",
    service: str = "Linear",
    headers: Mapping[str, str] | None = None,
    seconds: float = 30.0,
) -> Tool:
    """A tool `{query, variables?}` that posts one operation and gives the service's answer.

    An answer with top-level errors is a failed call whose output keeps the whole answer; so is
    anything that keeps the question from being put. `token` goes into `Authorization` as it is.
    """

    async def run(arguments: JsonValue) -> DynamicToolCallResponse:
        try:
            body = read_arguments(arguments)
            sent = {"Authorization": _known(token, name), **(headers or {})}
            answer = await _post(endpoint, body, sent, seconds)
        except InvalidQuery as error:
            return _response({"error": {"message": str(error)}}, is_good=False)
        except (OSError, TimeoutError, ValueError) as error:
            words = f"the request failed: {str(error) or type(error).__name__}"
            return _response({"error": {"message": words}}, is_good=False)
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
    """The body to post: from `{query, variables?}`, or from a bare query.

    Raises:
        InvalidQuery: there is no query, several operations, or variables that are no object.
    """
    given = {"query": arguments} if isinstance(arguments, str) else arguments
    if not isinstance(given, Mapping):
        raise InvalidQuery("expected an object with `query` and optionally `variables`")
    query, variables = given.get("query"), given.get("variables")
    if not isinstance(query, str) or not query.strip():
        raise InvalidQuery("`query` must be a text that is not empty")
    if variables is not None and not isinstance(variables, Mapping):
        raise InvalidQuery("`variables` must be an object")
    found = operations(query)
    if len(found) != 1:
        raise InvalidQuery(f"`query` must hold exactly one operation, not {len(found)}")
    if found[0] == "subscription":
        raise InvalidQuery("a subscription cannot be answered by one response")
    return {"query": query.strip(), "variables": dict(variables or {})}


def operations(query: str) -> Sequence[str]:
    """The kinds of the operations in a document; fragments are none."""
    found: list[str] = []
    depth = 0
    is_begun = False  # between the first word of a definition and the end of its braces
    for word in _WORDS.findall(query):
        if word in _OPENING:
            if word == "{" and depth == 0 and not is_begun:
                found.append("query")
                is_begun = True
            depth += 1
        elif word in _CLOSING:
            depth -= 1
            is_begun = is_begun and not (word == "}" and depth == 0)
        elif depth == 0 and not is_begun and word[0] not in _SILENT:
            is_begun = True
            if word in _OPERATIONS:
                found.append(word)
    return found


def _known(token: str | Callable[[], str | None] | None, name: str) -> str:
    known = token() if callable(token) else token
    if not known:
        raise InvalidQuery(f"{name} has no token: set one where the session is started")
    return known


async def _post(
    endpoint: str, body: JsonValue, headers: Mapping[str, str], seconds: float
) -> JsonValue:
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=seconds)
    # The model must not read the token, even where a service quotes its request.
    secrets = Secrets([*secrets_of_headers(headers), *secrets_of_url(endpoint)])
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as http,
            # Not followed: a redirect would take the token to another host.
            http.post(endpoint, json=body, allow_redirects=False) as answer,
        ):
            text = secrets.redact(await answer.text(), limit=None)
    except aiohttp.ClientError as error:
        words = without_queries(str(error)) or type(error).__name__
        raise OSError(secrets.redact(words)) from None
    if answer.status in REDIRECTS:
        target = redirect_target(endpoint, answer.headers.get("location"))
        where = "an unknown location" if target is None else origin_of(target)
        raise OSError(
            f"redirect to {secrets.redact(where)} was not followed (HTTP {answer.status})"
        )
    if answer.status != 200:
        raise OSError(f"HTTP status {answer.status}: {text[:500]}")
    document: JsonValue = msgspec.json.decode(text)
    return document


def _response(document: JsonValue, *, is_good: bool) -> DynamicToolCallResponse:
    text = msgspec.json.encode(document).decode()
    return DynamicToolCallResponse(
        [InputTextDynamicToolCallOutputContentItem(text)], success=is_good
    )
