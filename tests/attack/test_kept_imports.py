"""Imports continue after their answer: what they keep, and what they record, is limited."""

from __future__ import annotations

from pathlib import Path

from tests.harness.stalls import stalled
from tests.harness.threads import Stage, params_of
from treadle.protocol.base import JsonValue
from treadle.protocol.external_agent import (
    ExternalAgentConfigImportHistory,
    ExternalAgentConfigImportItemTypeSuccess,
)
from treadle.server.handlers import external_agent
from treadle.server.migration import history


def items(description: str = "") -> JsonValue:
    return [{"itemType": "SKILLS", "description": description}]


def results(source: str) -> JsonValue:
    success = {"itemType": "SKILLS", "source": source}
    return [{"itemType": "SKILLS", "successes": [success], "failures": []}]


async def test_a_client_has_a_few_imports_at_a_time(stage: Stage) -> None:
    """The answer comes at once, so the limit of unanswered requests does not hold."""
    client = await stage.client()
    with stalled(external_agent, "_apply") as stall:
        for _ in range(external_agent.MAX_IMPORTS):
            await client.request("externalAgentConfig/import", {"migrationItems": items()})
        await stall.reached()
        refused = await client.refusal("externalAgentConfig/import", {"migrationItems": items()})
        stall.release()
    for _ in range(external_agent.MAX_IMPORTS):
        await client.until("externalAgentConfig/import/completed")
    await client.request("externalAgentConfig/import", {"migrationItems": items()})
    messages = await client.until("externalAgentConfig/import/completed")

    assert refused.message == f"a client may have {external_agent.MAX_IMPORTS} imports"
    assert len(params_of(messages, "externalAgentConfig/import/completed")) == 1


async def test_an_import_of_large_items_is_refused(stage: Stage) -> None:
    client = await stage.client()
    large = items("x" * external_agent.MAX_ITEMS_BYTES)
    refused = await client.refusal("externalAgentConfig/import", {"migrationItems": large})

    assert refused.data["path"] == "migrationItems"


async def test_a_large_entry_does_not_make_the_history_unreadable(stage: Stage) -> None:
    """The file is read up to a limit, so an entry beyond it would hide all others."""
    client = await stage.client()
    record = "externalAgentConfig/import/recordHistory"
    first, large, last = (
        {"providerId": "own", "itemTypeResults": results(source)}
        for source in ("first", "x" * 3_000_000, "last")
    )
    await client.request(record, first)
    refused = await client.refusal(record, large)
    await client.request(record, last)
    read = await client.request("externalAgentConfig/import/readHistories", {})

    assert refused.data["path"] == "itemTypeResults"
    assert [each["successes"][0]["source"] for each in read["data"]] == ["last", "first"]


def test_an_import_of_many_parts_is_recorded_in_part(tmp_path: Path) -> None:
    """A user with many projects makes such an import; the next one must be recorded too."""
    success = ExternalAgentConfigImportItemTypeSuccess("SKILLS", "/w", "s" * 200, "t" * 200)
    for name in ("one", "two", "three"):
        entry = ExternalAgentConfigImportHistory(0, [], name, [success] * 5000)
        history.add(tmp_path, entry)
    read = history.read(tmp_path)

    assert [each.import_id for each in read] == ["three", "two", "one"]
    assert all(len(each.successes) > 200 for each in read)


def test_a_history_that_is_too_large_gives_way(tmp_path: Path) -> None:
    """It can neither be read nor changed, and users want to know of later imports."""
    path = tmp_path / history.FILE_NAME
    path.write_bytes(b"x" * (2 * history.MAX_BYTES + 1))
    history.add(tmp_path, ExternalAgentConfigImportHistory(0, [], "later", []))

    assert [each.import_id for each in history.read(tmp_path)] == ["later"]
