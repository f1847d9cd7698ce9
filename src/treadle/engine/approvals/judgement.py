"""Decides whether an action may run without approval; has no side effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from treadle.engine.commands.dangers import is_dangerous, is_forced_removal
from treadle.protocol.policy import (
    AskForApproval,
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    Granular,
    GranularAskForApproval,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
)
from treadle.shell.safe import is_known_safe
from treadle.shell.scripts import display


class Allowed(Struct, frozen=True):
    """The action may run, with `is_free` also outside the sandbox; `by` names what allowed it."""

    by: str
    is_free: bool = False
    # Allowed only because of what its text names: the programs have to be those of the user.
    by_text: bool = False


class NeedsApproval(Struct, frozen=True):
    """The action requires approval; `reason` is for the user."""

    by: str
    reason: str | None = None
    # Only a person may approve it, and only for this one time.
    is_personal: bool = False


class Forbidden(Struct, frozen=True):
    """The action may not run, and no approval is requested; `reason` is for the model."""

    by: str
    reason: str


Judgement: TypeAlias = Allowed | NeedsApproval | Forbidden

NEVER_ESCALATE: Final = (
    "the approval policy does not allow requests for approval, so the command cannot run outside "
    "the sandbox; run it without requesting more permissions"
)
NEVER_TYPE: Final = (
    "the terminal has more permissions than the sandbox allows now, and the approval policy does "
    "not allow requests for approval; start a new terminal"
)
NEVER_BY_RULE: Final = (
    "a rule requires approval, but the approval policy does not allow requests for it"
)
DANGEROUS: Final = (
    "the command is dangerous, and the approval policy does not allow requests for approval"
)
OUTSIDE: Final = "writing outside of the project; rejected by user approval settings"
READ_ONLY: Final = "writing is blocked by read-only sandbox; rejected by user approval settings"

Kind: TypeAlias = Literal["sandbox_approval", "rules"]


class Rule(Protocol):
    """A rule that applies to a command."""

    @property
    def decision(self) -> str:
        """`allow`, `prompt`, `prompt-user` or `forbidden`."""
        ...

    @property
    def pattern(self) -> Sequence[str]:
        """The words that the rule matched."""
        ...

    @property
    def source(self) -> str:
        """The file and line."""
        ...

    @property
    def justification(self) -> str | None:
        """The reason that the author of the rule gives."""
        ...


def judge_command(
    argv: Sequence[str],
    *,
    policy: AskForApproval,
    sandbox: SandboxPolicy,
    rule: Rule | None,
    wants_more: bool,
) -> Judgement:
    """Judge a command; `wants_more`: it requests more than the sandbox allows."""
    is_open = isinstance(sandbox, DangerFullAccessSandboxPolicy | ExternalSandboxSandboxPolicy)
    wants_more = wants_more and not is_open
    if rule is not None:
        return _by_rule(rule, argv, policy, wants_more=wants_more)
    if is_dangerous(argv):
        judgement = _ask_if_allowed(
            policy, "sandbox_approval", "dangerous command", None, DANGEROUS
        )
        # Where no approval can be requested, only forced removal of files is forbidden.
        if isinstance(judgement, NeedsApproval) or is_forced_removal(argv):
            return judgement
    # Outside a sandbox, the settings of a repository could name any program.
    if is_known_safe(argv, trusts_repository=not is_open) and not wants_more:
        return Allowed("known to be safe", by_text=policy == "untrusted")
    if policy == "untrusted":
        return NeedsApproval("policy untrusted")
    if not wants_more:
        return Allowed(f"policy {name_of(policy)}")
    return _ask_if_allowed(
        policy, "sandbox_approval", "requests more permissions", None, NEVER_ESCALATE
    )


def judge_retry(policy: AskForApproval) -> Judgement:
    """Judge whether a command that the sandbox stopped may be retried without it."""
    reason = "command failed; retry without sandbox?"
    switches = granular(policy)
    if policy in ("on-failure", "untrusted") or (switches and switches.sandbox_approval):
        return NeedsApproval(f"policy {name_of(policy)}", reason)
    return Forbidden(f"policy {name_of(policy)}", "the sandbox stopped the command")


def judge_input(policy: AskForApproval, reason: str) -> Judgement:
    """Judge input for a command with more permissions than a new command would get."""
    return _ask_if_allowed(policy, "sandbox_approval", "has more permissions", reason, NEVER_TYPE)


def judge_edit(policy: AskForApproval, sandbox: SandboxPolicy, *, is_inside: bool) -> Judgement:
    """Judge edits of files; `is_inside`: the sandbox may write all of them."""
    if policy == "untrusted":
        return NeedsApproval("policy untrusted")
    if is_inside:
        return Allowed(f"policy {name_of(policy)}")
    refusal = READ_ONLY if isinstance(sandbox, ReadOnlySandboxPolicy) else OUTSIDE
    return _ask_if_allowed(policy, "sandbox_approval", "outside the project", None, refusal)


def name_of(policy: AskForApproval) -> str:
    """The name of a policy."""
    return policy if isinstance(policy, str) else "granular"


def granular(policy: AskForApproval) -> Granular | None:
    """The switches of a granular policy, if it is one."""
    return policy.granular if isinstance(policy, GranularAskForApproval) else None


def _by_rule(
    rule: Rule, argv: Sequence[str], policy: AskForApproval, *, wants_more: bool
) -> Judgement:
    by, shown, why = f"rule {rule.source}", f"`{display(argv)}`", rule.justification
    if rule.decision == "allow":
        return Allowed(by, is_free=True)
    if rule.decision == "forbidden":
        prefix = " ".join(rule.pattern)
        why = why or f"policy forbids commands starting with `{prefix}`"
        return Forbidden(by, f"{shown} rejected: {why}")
    # One approval would cover the rule and the escalation, so the policy must allow both requests.
    if wants_more:
        judgement = _ask_if_allowed(policy, "sandbox_approval", by, None, NEVER_ESCALATE)
        if isinstance(judgement, Forbidden):
            return judgement
    is_personal = rule.decision == "prompt-user"
    approval = "human approval" if is_personal else "approval"
    reason = (
        f"{shown} requires {approval}: {why}" if why else f"{shown} requires {approval} by policy"
    )
    judgement = _ask_if_allowed(policy, "rules", by, reason, NEVER_BY_RULE)
    if isinstance(judgement, NeedsApproval):
        return NeedsApproval(by, reason, is_personal=is_personal)
    return judgement


def _ask_if_allowed(
    policy: AskForApproval, kind: Kind, by: str, reason: str | None, refusal: str
) -> Judgement:
    switches = granular(policy)
    if policy == "never" or (switches is not None and not getattr(switches, kind)):
        return Forbidden(f"policy {name_of(policy)}", refusal)
    return NeedsApproval(by, reason)
