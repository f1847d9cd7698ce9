"""Clients are warned at the start where the sandbox of the machine leaves gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.model_server import calls, model_server
from tests.harness.sandbox import using
from tests.harness.threads import Client, Stage, configure, params_of, spawned
from treadle.protocol.base import JsonValue
from treadle.sandbox.backends.base import Bubblewrap, Landlock
from treadle.sandbox.backends.landlock import LandlockMissing, version

WARNING = "configWarning"
WORK: JsonValue = {"approvalPolicy": "never", "sandbox": "workspace-write"}


@pytest.fixture(autouse=True)
def has_landlock() -> None:
    """Skip where the kernel has no Landlock: there is nothing to warn of."""
    try:
        version()
    except LandlockMissing:
        pytest.skip("landlock does not work here")


async def next_warning(client: Client) -> JsonValue:
    """The next warning."""
    return (await client.until(WARNING))[-1]["params"]


async def test_every_client_is_warned_of_what_landlock_does_not_protect(stage: Stage) -> None:
    with using(Landlock()):
        first = await stage.client()
        thread_id = await first.start(cwd=str(stage.workspace), **WORK)
        await first.start_turn(thread_id)
        warning = await next_warning(first)
        later = await next_warning(await stage.client())

    assert warning["summary"].startswith("The sandbox has gaps on this machine")
    assert ".git, .codex and .agents in writable folders are not protected" in warning["details"]
    assert later == warning


async def test_commands_of_a_client_cause_the_warning_too(stage: Stage) -> None:
    with using(Landlock()):
        client = await stage.client()
        await client.request("command/exec", {"command": ["true"], "cwd": str(stage.workspace)})
        assert "landlock_protects = true" in (await next_warning(client))["details"]


async def test_no_client_is_warned_where_everything_is_protected(stage: Stage) -> None:
    with using(Bubblewrap("/usr/bin/bwrap")):
        client = await stage.client()
        heard = await client.run(await client.start(cwd=str(stage.workspace), **WORK))
        late = await (await stage.client()).settled()

    assert params_of([*heard, *late], WARNING) == []


@pytest.mark.parametrize("protects", [False, True])
async def test_the_configuration_decides_what_landlock_protects(
    home: Path, tmp_path: Path, protects: bool
) -> None:
    """A server that does not find bubblewrap on its path."""
    from tests.harness.processes import TREADLE

    workspace = tmp_path / "workspace"
    (workspace / ".git").mkdir(parents=True)
    (workspace / ".git" / "config").write_text("precious")
    more = f"[sandbox]\nlandlock_protects = {str(protects).lower()}\n"
    async with model_server() as model:
        configure(home, model, more)
        command = ["/usr/bin/env", "PATH=/nowhere", TREADLE, "app-server"]
        async with spawned(command, home) as client:
            model.plays(calls("exec_command", {"cmd": "echo x > .git/config"}))
            thread_id = await client.start(cwd=str(workspace), **WORK)
            await client.run(thread_id)

    assert (workspace / ".git" / "config").read_text() == ("precious" if protects else "x\n")
