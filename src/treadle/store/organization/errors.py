"""What is wrong with a request to organize threads."""

from __future__ import annotations


class InvalidOrganization(Exception):
    """A value of the request is invalid; `path` names its field."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path
