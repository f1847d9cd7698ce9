"""The table of policies: which actions are allowed, need approval, or are refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from treadle.engine.approvals.judgement import (
    DANGEROUS,
    NEVER_BY_RULE,
    NEVER_ESCALATE,
    OUTSIDE,
    READ_ONLY,
    Allowed,
    Forbidden,
    Judgement,
    NeedsApproval,
    judge_command,
    judge_edit,
    judge_retry,
)
from treadle.protocol.policy import (
    AskForApproval,
    DangerFullAccessSandboxPolicy,
    Granular,
    GranularAskForApproval,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)

READ, WRITE = ReadOnlySandboxPolicy(), WorkspaceWriteSandboxPolicy()
FULL = DangerFullAccessSandboxPolicy()
TOUCH = ["/bin/bash", "-lc", "touch a"]
LIST = ["/bin/bash", "-lc", "ls"]
STATUS = ["/bin/bash", "-lc", "git status"]
REMOVE = ["/bin/bash", "-lc", "rm -rf /"]
RESET = ["/bin/bash", "-lc", "git reset --hard"]
SHOWN = "`/bin/bash -lc 'rm -rf /'`"


def granular(**switches: bool) -> AskForApproval:
    """A granular policy with everything off but these."""
    off = {"mcp_elicitations": False, "rules": False, "sandbox_approval": False}
    return GranularAskForApproval(granular=Granular(**{**off, **switches}))


@dataclass(frozen=True)
class Ruled:
    """The decision of a rules file."""

    decision: str
    source: str = "default.rules:3"
    justification: str | None = None
    pattern: tuple[str, ...] = ("rm", "-rf")


@pytest.mark.parametrize(
    ("argv", "policy", "sandbox", "wants_more", "expected"),
    [
        (TOUCH, "never", WRITE, False, Allowed("policy never")),
        (TOUCH, "on-request", READ, False, Allowed("policy on-request")),
        (TOUCH, "on-failure", READ, False, Allowed("policy on-failure")),
        (TOUCH, "untrusted", WRITE, False, NeedsApproval("policy untrusted")),
        (LIST, "untrusted", WRITE, False, Allowed("known to be safe", by_text=True)),
        (LIST, "on-request", WRITE, False, Allowed("known to be safe")),
        (STATUS, "untrusted", WRITE, False, Allowed("known to be safe", by_text=True)),
        (STATUS, "untrusted", FULL, False, NeedsApproval("policy untrusted")),
        (STATUS, "on-request", FULL, False, Allowed("policy on-request")),
        (LIST, "untrusted", WRITE, True, NeedsApproval("policy untrusted")),
        (TOUCH, "on-request", WRITE, True, NeedsApproval("requests more permissions")),
        (TOUCH, "on-request", FULL, True, Allowed("policy on-request")),
        (TOUCH, "never", WRITE, True, Forbidden("policy never", NEVER_ESCALATE)),
        (TOUCH, granular(), WRITE, True, Forbidden("policy granular", NEVER_ESCALATE)),
        (
            TOUCH,
            granular(sandbox_approval=True),
            WRITE,
            True,
            NeedsApproval("requests more permissions"),
        ),
        (REMOVE, "on-request", FULL, False, NeedsApproval("dangerous command")),
        (REMOVE, "never", WRITE, False, Forbidden("policy never", DANGEROUS)),
        (RESET, "on-request", WRITE, False, NeedsApproval("dangerous command")),
        (RESET, "never", WRITE, False, Allowed("policy never")),
    ],
)
def test_a_command_is_judged_by_policy_sandbox_and_kind(
    argv: list[str],
    policy: AskForApproval,
    sandbox: SandboxPolicy,
    wants_more: bool,
    expected: Judgement,
) -> None:
    judged = judge_command(argv, policy=policy, sandbox=sandbox, rule=None, wants_more=wants_more)
    assert judged == expected


@pytest.mark.parametrize(
    ("rule", "policy", "expected"),
    [
        (Ruled("allow"), "untrusted", Allowed("rule default.rules:3", is_free=True)),
        (Ruled("prompt"), "on-request", f"{SHOWN} requires approval by policy"),
        (Ruled("prompt", justification="ask"), "on-request", f"{SHOWN} requires approval: ask"),
        (Ruled("forbidden", justification="no"), "on-request", f"{SHOWN} rejected: no"),
        (
            Ruled("forbidden"),
            "on-request",
            f"{SHOWN} rejected: policy forbids commands starting with `rm -rf`",
        ),
        (Ruled("prompt"), "never", NEVER_BY_RULE),
        (Ruled("prompt"), granular(sandbox_approval=True), NEVER_BY_RULE),
        (Ruled("prompt"), granular(rules=True), f"{SHOWN} requires approval by policy"),
    ],
)
def test_a_rule_takes_precedence(
    rule: Ruled, policy: AskForApproval, expected: Judgement | str
) -> None:
    judged = judge_command(REMOVE, policy=policy, sandbox=READ, rule=rule, wants_more=False)
    assert (judged.reason if isinstance(expected, str) else judged) == expected  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("policy", "is_inside", "expected"),
    [
        ("never", True, Allowed("policy never")),
        ("never", False, Forbidden("policy never", OUTSIDE)),
        ("never", None, Forbidden("policy never", READ_ONLY)),
        ("on-request", True, Allowed("policy on-request")),
        ("on-request", False, NeedsApproval("outside the project")),
        ("on-failure", False, NeedsApproval("outside the project")),
        ("untrusted", True, NeedsApproval("policy untrusted")),
        (granular(), False, Forbidden("policy granular", OUTSIDE)),
    ],
)
def test_edits_are_judged_by_policy_and_place(
    policy: AskForApproval, is_inside: bool | None, expected: Judgement
) -> None:
    sandbox = READ if is_inside is None else WRITE
    assert judge_edit(policy, sandbox, is_inside=bool(is_inside)) == expected


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("on-failure", NeedsApproval),
        ("untrusted", NeedsApproval),
        ("on-request", Forbidden),
        ("never", Forbidden),
        (granular(sandbox_approval=True), NeedsApproval),
        (granular(rules=True), Forbidden),
    ],
)
def test_only_some_policies_retry_without_the_sandbox(
    policy: AskForApproval, kind: type[Judgement]
) -> None:
    assert isinstance(judge_retry(policy), kind)
