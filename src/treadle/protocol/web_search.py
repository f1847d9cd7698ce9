"""Actions of a web search, as sent to clients and as spelled by the Responses API."""

from __future__ import annotations

from treadle.protocol.base import Sparse


class FindInPageWebSearchAction(Sparse, tag="findInPage", frozen=True):
    """The agent searched a web page for a phrase."""

    pattern: str | None = None
    url: str | None = None


class OpenPageWebSearchAction(Sparse, tag="openPage", frozen=True):
    """The agent opened a web page."""

    url: str | None = None


class OtherWebSearchAction(Sparse, tag="other", frozen=True):
    """The agent used its search tool in another way."""


class SearchWebSearchAction(Sparse, tag="search", frozen=True):
    """The agent searched the web."""

    queries: list[str] | None = None
    query: str | None = None


WebSearchAction = (
    SearchWebSearchAction
    | OpenPageWebSearchAction
    | FindInPageWebSearchAction
    | OtherWebSearchAction
)


class FindInPageResponsesApiWebSearchAction(Sparse, tag="find_in_page", frozen=True):
    """Search a web page for a phrase."""

    pattern: str | None = None
    url: str | None = None


class OpenPageResponsesApiWebSearchAction(Sparse, tag="open_page", frozen=True):
    """Open a web page."""

    url: str | None = None


class OtherResponsesApiWebSearchAction(Sparse, tag="other", frozen=True):
    """A web search action of an unknown kind."""


class SearchResponsesApiWebSearchAction(Sparse, tag="search", frozen=True):
    """Search the web."""

    queries: list[str] | None = None
    query: str | None = None


ResponsesApiWebSearchAction = (
    SearchResponsesApiWebSearchAction
    | OpenPageResponsesApiWebSearchAction
    | FindInPageResponsesApiWebSearchAction
    | OtherResponsesApiWebSearchAction
)
