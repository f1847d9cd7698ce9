"""Our schemas beside the reference's: every difference is listed, and no listed one is outdated.

The list is `differences.toml`. A `where` may contain `*`; the two sides of a `what` are compared
literally.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from tests.conformance.reference import BUNDLE, recorded, recording
from tests.conformance.shape import Describer, Facts, Schema, definitions_of, message_facts
from tests.harness.golden import Golden
from tests.harness.releases import LATEST_TYPES
from treadle.protocol.base import JsonValue
from treadle.protocol.export import json_schema_files, typescript_files

UNIONS = {"ClientNotification", "ClientRequest", "ServerNotification", "ServerRequest"}

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


def schema_differences(theirs: dict[str, Schema], *, experimental: bool) -> Iterator[Difference]:
    """Compare all methods, and all types that both sides know."""
    ours = definitions_of(json.loads(json_schema_files(experimental=experimental)[BUNDLE]))
    yield from compare(message_facts(theirs), message_facts(ours))
    known = theirs.keys() & ours.keys()
    for name in sorted(known - UNIONS):
        left, right = Describer(theirs, known), Describer(ours, known)
        yield from compare(left.facts(name), right.facts(name))


def file_differences(theirs: Iterable[str], ours: Iterable[str]) -> Iterator[Difference]:
    """Compare which files the two sides write."""
    there, here = (dict.fromkeys(files, "written") for files in (theirs, ours))
    for where, what in compare(there, here):
        yield f"file {where}", what


def differences(document: JsonValue) -> frozenset[Difference]:
    """Return all differences from a recording; those of the stable output only are marked."""
    full, stable = (recorded(document, experimental=each) for each in (True, False))
    schemas = json_schema_files(experimental=True)
    everywhere = {
        *schema_differences(full["definitions"], experimental=True),
        *file_differences(full["files"], schemas | typescript_files(experimental=True)),
    }
    in_stable = {
        *schema_differences(stable["definitions"], experimental=False),
        *file_differences(stable["files"], json_schema_files(experimental=False)),
    }
    return frozenset(
        everywhere | {(f"stable {where}", what) for where, what in in_stable - everywhere}
    )


def is_covered(difference: Difference, entry: Mapping[str, str]) -> bool:
    """Return whether an entry of the list covers a difference."""
    where, what = difference
    return fnmatchcase(where, entry["where"]) and fnmatchcase(what, entry["what"])


def test_differences_from_the_reference_are_listed_and_listed_ones_exist(golden: Golden) -> None:
    """Ours: upstream publishes no conformance suite, so its own generator is the standard."""
    golden = golden.of(LATEST_TYPES)
    if golden.runs_reference:
        golden.check("types", recording(golden.program))
        return
    document = golden.load("types")
    found, entries = differences(document), listed()

    unlisted = [
        difference
        for difference in sorted(found)
        if not any(is_covered(difference, entry) for entry in entries)
    ]
    outdated = [
        entry for entry in entries if not any(is_covered(difference, entry) for difference in found)
    ]

    assert unlisted == []
    assert outdated == []
    assert_that_much_is_compared(document)


def assert_that_much_is_compared(document: JsonValue) -> None:
    """A comparison that reads nothing would find no difference either."""
    theirs = recorded(document, experimental=True)["definitions"]
    describer = Describer(theirs, theirs.keys())

    facts = {name: describer.facts(name) for name in theirs.keys() - UNIONS}

    assert facts["TurnInterruptParams"] == {
        "TurnInterruptParams.threadId": "required string",
        "TurnInterruptParams.turnId": "required string",
    }
    assert sum(map(len, facts.values())) > 3_000


def test_every_listed_difference_has_a_reason() -> None:
    for entry in listed():
        assert entry.keys() == {"where", "what", "reason"}
        assert entry["reason"].endswith(".")
