"""Our schemas beside the reference's: every difference is listed, and no listed one is outdated.

The list is `differences.toml`. A `where` may contain `*`; the two sides of a `what` are compared
literally.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from tests.conformance import reference
from tests.conformance.shape import Describer, Facts, definitions_of, message_facts
from treadle.protocol.export import json_schema_files, typescript_files

pytestmark = pytest.mark.usefixtures("reference")

UNIONS = {"ClientNotification", "ClientRequest", "ServerNotification", "ServerRequest"}
BUNDLE = "codex_app_server_protocol.schemas.json"

Difference = tuple[str, str]


def listed() -> list[dict[str, str]]:
    """Return the listed differences."""
    text = Path(__file__).with_name("differences.toml").read_text(encoding="utf-8")
    entries: list[dict[str, str]] = tomllib.loads(text)["difference"]
    return entries


def compare(theirs: Facts, ours: Facts) -> Iterator[Difference]:
    """Return the places about which the two sides differ."""
    for where in sorted(theirs.keys() | ours.keys()):
        left, right = theirs.get(where, "absent"), ours.get(where, "absent")
        if left != right:
            yield where, f"reference {left}, ours {right}"


def schema_differences(*, experimental: bool) -> Iterator[Difference]:
    """Compare all methods, and all types that both sides know."""
    theirs = definitions_of(reference.bundle(experimental=experimental))
    ours = definitions_of(json.loads(json_schema_files(experimental=experimental)[BUNDLE]))
    yield from compare(message_facts(theirs), message_facts(ours))
    known = theirs.keys() & ours.keys()
    for name in sorted(known - UNIONS):
        left, right = Describer(theirs, known), Describer(ours, known)
        yield from compare(left.facts(name), right.facts(name))


def file_differences(
    kind: str, theirs: Mapping[str, str], ours: Mapping[str, str]
) -> Iterator[Difference]:
    """Compare which files the two sides write."""
    here, there = (dict.fromkeys(files, "written") for files in (ours, theirs))
    for where, what in compare(there, here):
        yield f"{kind} {where}", what


@cache
def differences() -> frozenset[Difference]:
    """Return all differences; those of the stable output only are marked."""
    full = {
        *schema_differences(experimental=True),
        *file_differences(
            "file",
            reference.generated("generate-json-schema", experimental=True)
            | reference.generated("generate-ts", experimental=True),
            json_schema_files(experimental=True) | typescript_files(experimental=True),
        ),
    }
    stable = {
        *schema_differences(experimental=False),
        *file_differences(
            "file",
            reference.generated("generate-json-schema", experimental=False),
            json_schema_files(experimental=False),
        ),
    }
    return frozenset(full | {(f"stable {where}", what) for where, what in stable - full})


def is_covered(difference: Difference, entry: Mapping[str, str]) -> bool:
    """Return whether an entry of the list covers a difference."""
    where, what = difference
    return fnmatchcase(where, entry["where"]) and fnmatchcase(what, entry["what"])


def test_every_difference_from_the_reference_is_listed() -> None:
    """Ours: upstream publishes no conformance suite, so its own generator is the standard."""
    entries = listed()

    unlisted = [
        difference
        for difference in sorted(differences())
        if not any(is_covered(difference, entry) for entry in entries)
    ]

    assert unlisted == []


@pytest.mark.parametrize("entry", listed(), ids=lambda entry: f"{entry['where']}: {entry['what']}")
def test_every_listed_difference_still_exists_and_has_a_reason(entry: dict[str, str]) -> None:
    assert entry.keys() == {"where", "what", "reason"}
    assert entry["reason"].endswith(".")
    assert any(is_covered(difference, entry) for difference in differences())


def test_the_comparison_covers_thousands_of_facts() -> None:
    """A comparison that reads nothing would find no difference either."""
    theirs = definitions_of(reference.bundle(experimental=True))
    describer = Describer(theirs, theirs.keys())

    facts = {name: describer.facts(name) for name in theirs.keys() - UNIONS}

    assert facts["TurnInterruptParams"] == {
        "TurnInterruptParams.threadId": "required string",
        "TurnInterruptParams.turnId": "required string",
    }
    assert sum(map(len, facts.values())) > 3_000
