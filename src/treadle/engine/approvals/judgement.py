"""May an action be carried out unasked? A table of policies, and nothing that acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

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


@dataclass(frozen=True, slots=True)
class Allowed:
    """It may; `is_free` outside the sandbox too. `by` names what allowed it."""

    by: str
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """Somebody has to be asked; `reason` is for them."""

    by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Forbidden:
    """It may not, and nobody is asked; `reason` is for the model."""

    by: str
    reason: str


Judgement: TypeAlias = Allowed | NeedsApproval | Forbidden

NEVER_ESCALATE: Final = (
    "the approval policy lets nobody be asked: the command cannot be run outside the sandbox; "
    "run it without asking for more rights"
)
NEVER_TYPE: Final = (
    "the terminal may do more than the sandbox allows now, and nobody can be asked; "
    "start another one"
)
NEVER_BY_RULE: Final = "approval required by a rule, but nobody may be asked"
DANGEROUS: Final = "the command is dangerous, and nobody can be asked about it"
OUTSIDE: Final = "writing outside of the project; rejected by user approval settings"
READ_ONLY: Final = "writing is blocked by read-only sandbox; rejected by user approval settings"

Kind: TypeAlias = Literal["sandbox_approval", "rules"]


class Rule(Protocol):
    """What a rules file says about a command."""

    @property
    def decision(self) -> str:
        """Whether it allows, asks or forbids."""
        ...

    @property
    def pattern(self) -> Sequence[str]:
        """The words that it matched."""
        ...

    @property
    def source(self) -> str:
        """The file and line."""
        ...

    @property
    def justification(self) -> str | None:
        """Why, in the words of whoever wrote it."""
        ...


def judge_command(
    argv: Sequence[str],
    *,
    policy: AskForApproval,
    sandbox: SandboxPolicy,
    rule: Rule | None,
    wants_more: bool,
) -> Judgement:
    """Judge a command; `wants_more` says that the model asks for more than the sandbox gives."""
    is_open = isinstance(sandbox, DangerFullAccessSandboxPolicy | ExternalSandboxSandboxPolicy)
    wants_more = wants_more and not is_open
    if rule is not None:
        return _by_rule(rule, argv, policy, wants_more=wants_more)
    if is_dangerous(argv):
        asked = _ask_if_allowed(policy, "sandbox_approval", "dangerous command", None, DANGEROUS)
        # Where nobody can be asked, only what takes files away for good is refused.
        if isinstance(asked, NeedsApproval) or is_forced_removal(argv):
            return asked
    if is_known_safe(argv) and not wants_more:
        return Allowed("known to be safe")
    if policy == "untrusted":
        return NeedsApproval("policy untrusted")
    if not wants_more:
        return Allowed(f"policy {name_of(policy)}")
    return _ask_if_allowed(policy, "sandbox_approval", "asks for more", None, NEVER_ESCALATE)


def judge_retry(policy: AskForApproval) -> Judgement:
    """Judge whether a command that the sandbox stopped may be tried without it."""
    reason = "command failed; retry without sandbox?"
    switches = granular(policy)
    if policy in ("on-failure", "untrusted") or (switches and switches.sandbox_approval):
        return NeedsApproval(f"policy {name_of(policy)}", reason)
    return Forbidden(f"policy {name_of(policy)}", "the sandbox stopped the command")


def judge_input(policy: AskForApproval, reason: str) -> Judgement:
    """Judge input for a command that may do more than one that is started now."""
    return _ask_if_allowed(policy, "sandbox_approval", "may do more", reason, NEVER_TYPE)


def judge_edit(policy: AskForApproval, sandbox: SandboxPolicy, *, is_inside: bool) -> Judgement:
    """Judge edits of files; `is_inside` says that all of them lie where the sandbox may write."""
    if policy == "untrusted":
        return NeedsApproval("policy untrusted")
    if is_inside:
        return Allowed(f"policy {name_of(policy)}")
    refusal = READ_ONLY if isinstance(sandbox, ReadOnlySandboxPolicy) else OUTSIDE
    return _ask_if_allowed(policy, "sandbox_approval", "outside the project", None, refusal)


def name_of(policy: AskForApproval) -> str:
    """The policy in one word."""
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
    # One yes would answer two questions, so both must be allowed to be put.
    if wants_more:
        asked = _ask_if_allowed(policy, "sandbox_approval", by, None, NEVER_ESCALATE)
        if isinstance(asked, Forbidden):
            return asked
    reason = f"{shown} requires approval: {why}" if why else f"{shown} requires approval by policy"
    return _ask_if_allowed(policy, "rules", by, reason, NEVER_BY_RULE)


def _ask_if_allowed(
    policy: AskForApproval, kind: Kind, by: str, reason: str | None, refusal: str
) -> Judgement:
    switches = granular(policy)
    if policy == "never" or (switches is not None and not getattr(switches, kind)):
        return Forbidden(f"policy {name_of(policy)}", refusal)
    return NeedsApproval(by, reason)
