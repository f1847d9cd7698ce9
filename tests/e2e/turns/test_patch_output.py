"""`item/fileChange/outputDelta`: which clients receive the output of patches.

Those of older releases and those with `legacyApprovals`, unless they opted out.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from tests.harness.lines import in_memory
from tests.harness.model_server import patches
from tests.harness.peer import Peer
from tests.harness.threads import Client, Stage, line_of, params_of
from treadle.protocol.base import JsonValue

OUTPUT = "item/fileChange/outputDelta"
WRITES: JsonValue = {"sandbox": "workspace-write", "approvalPolicy": "never", "model": "gpt-5.5"}
ADDS = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch"


async def outputs(stage: Stage, initialize: JsonValue, patch: str = ADDS) -> list[JsonValue]:
    """Return the deltas that a client with these `initialize` params receives of a patch."""
    stage.model.plays(patches(patch))
    async with AsyncExitStack() as stack:
        peer: Peer = await stack.enter_async_context(in_memory(stage.server))
        client = Client(peer)
        await client.request("initialize", initialize)
        await peer.send({"method": "initialized"})
        messages = await client.run(await client.start(cwd=str(stage.workspace), **WRITES))
    lines = [line_of(message) for message in messages]
    if OUTPUT in lines:
        assert lines.index(OUTPUT) + 1 == lines.index("item/completed fileChange")
    return params_of(messages, OUTPUT)


@pytest.mark.parametrize(
    ("initialize", "is_sent"),
    [
        ({"clientInfo": {"name": "codex_vscode", "version": "0.1.0"}}, True),
        ({"clientInfo": {"name": "codex-tui", "version": "0.118.0-alpha.1"}}, True),
        ({"clientInfo": {"name": "codex-tui", "version": "0.163.0"}}, False),
        ({"clientInfo": {"name": "codex-tui", "version": ""}}, False),
        ({"clientInfo": {"name": "codex-tui", "version": "0.x"}}, False),
        ({"clientInfo": {"name": "mine", "version": "0.1.0"}}, False),
        (
            {
                "clientInfo": {"name": "mine", "version": "9"},
                "capabilities": {"extensions": {"legacyApprovals": True}},
            },
            True,
        ),
        (
            {
                "clientInfo": {"name": "codex_vscode", "version": "0.1.0"},
                "capabilities": {"optOutNotificationMethods": [OUTPUT]},
            },
            False,
        ),
    ],
    ids=str,
)
async def test_clients_of_older_releases_receive_the_output_of_patches(
    stage: Stage, initialize: JsonValue, *, is_sent: bool
) -> None:
    """Upstream 0.118 sends it, 0.163 does not."""
    sent = await outputs(stage, initialize)

    assert [each["delta"] for each in sent] == (
        ["Success. Updated the following files:\nA new.txt\n"] if is_sent else []
    )


async def test_the_output_of_a_patch_that_fails_is_the_reason(stage: Stage) -> None:
    older = {"clientInfo": {"name": "codex_vscode", "version": "0.1.0"}}
    (stage.workspace / "new.txt").mkdir()
    sent = await outputs(stage, older)

    path = stage.workspace / "new.txt"
    assert [each["delta"] for each in sent] == [f"Failed to write file {path}\n"]
