"""Commands that a rule forbids, or asks about, in spellings that hide them from it."""

from __future__ import annotations

from typing import Final

import pytest

from tests.harness.model_server import calls, says
from tests.harness.threads import Stage, params_of
from treadle.engine.commands.dangers import is_dangerous
from treadle.engine.commands.rule_file import read_rules
from treadle.engine.commands.rules import Rules

FORBIDDEN: Final = """\
prefix_rule(pattern=["touch"], decision="forbidden")
prefix_rule(pattern=["git", "push"], decision="forbidden")
"""

# Too much for the search for these names, and for no other.
CROWDED: Final = [
    "env touch made " + "touch " * 120,
    "nice touch made " + "touch " * 120,
    "[[ 1 ]]; touch made; : " + "touch; " * 500,
    "timeout 9 /bin/touch made " + "/bin/touch " * 120,
]


def decision(script: str, shell: str = "bash") -> str | None:
    verdict = Rules([read_rules(FORBIDDEN, "default.rules")]).check([shell, "-lc", script])
    return None if verdict is None else verdict.decision


@pytest.mark.parametrize("script", CROWDED)
def test_a_crowd_of_its_name_hides_no_forbidden_command(script: str) -> None:
    assert not is_dangerous(["bash", "-lc", script])
    assert decision(script) in {"prompt", "forbidden"}


def test_a_forbidden_command_that_was_seen_stays_forbidden() -> None:
    assert decision(CROWDED[0]) == "forbidden"


@pytest.mark.parametrize("policy", ["on-request", "never"])
async def test_the_server_runs_no_forbidden_command_in_a_crowd(stage: Stage, policy: str) -> None:
    (stage.home / "rules").mkdir()
    (stage.home / "rules" / "default.rules").write_text(FORBIDDEN)
    client = await stage.client()
    stage.model.plays(calls("exec_command", {"cmd": CROWDED[0]}), says("done"))
    thread_id = await client.start(
        cwd=str(stage.workspace), approvalPolicy=policy, sandbox="workspace-write"
    )
    events = await client.end_of(await client.begin(thread_id))

    items = [each["item"] for each in params_of(events, "item/completed")]
    assert [item["status"] for item in items if item["type"] == "commandExecution"] == ["declined"]
    assert not (stage.workspace / "made").exists()
