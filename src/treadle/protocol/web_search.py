"""What a search of the web does: as clients are told it, and as the Responses API spells it."""

from __future__ import annotations

from treadle.protocol.base import Sparse


class FindInPageWebSearchAction(Sparse, tag="findInPage", frozen=True):
    """The agent looked for a phrase in a web page."""

    pattern: str | None = None
    url: str | None = None


class OpenPageWebSearchAction(Sparse, tag="openPage", frozen=True):
    """The agent opened a web page."""

    url: str | None = None


class OtherWebSearchAction(Sparse, tag="other", frozen=True):
    """The agent did something else with its search tool."""


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
    """Look for a phrase in a web page."""

    pattern: str | None = None
    url: str | None = None


class OpenPageResponsesApiWebSearchAction(Sparse, tag="open_page", frozen=True):
    """Open a web page."""

    url: str | None = None


class OtherResponsesApiWebSearchAction(Sparse, tag="other", frozen=True):
    """A use of web search of a kind not known here."""


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
