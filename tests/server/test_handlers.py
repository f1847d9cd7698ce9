"""Handlers are found without importing them: the table must match the files."""

from __future__ import annotations

import pkgutil

import pytest

from treadle.server import handlers
from treadle.server.handlers._table import RESOURCES


def test_every_file_of_handlers_is_in_the_table() -> None:
    files = {module.name for module in pkgutil.iter_modules(handlers.__path__)}
    assert files - {"_table"} == set(RESOURCES)


@pytest.mark.parametrize("resource", RESOURCES)
def test_the_table_names_what_a_file_answers(resource: str) -> None:
    listed = list(RESOURCES[resource])
    assert listed == sorted(handlers.router_of(resource).methods())
