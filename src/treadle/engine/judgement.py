"""May an action be carried out unasked? A table of policies, and nothing that acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from treadle.engine.commands.safe import is_dangerous, is_forced_removal, is_known_safe
from treadle.protocol.policy import (
    AskForApproval,
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    Granular,
    GranularAskForApproval,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
)


@dataclass(frozen=True, slots=True)
class Allowed:
    """It may; `is_free` outside the sandbox too. `by` names what allowed it."""

    by: str
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class Questionable:
    """Somebody has to be asked; `reason` is for them."""

    by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Forbidden:
    """It may not, and nobody is asked; `reason` is for the model."""

    by: str
    reason: str


Judgement: TypeAlias = Allowed | Questionable | Forbidden

NEVER_ESCALATE: Final = (
    "approval policy is never: the command cannot be run outside the sandbox; "
    "run it without asking for more rights"
)
NEVER_TYPE: Final = (
    "the terminal may do more than the sandbox allows now, and nobody can be asked; "
    "start another one"
)
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
    if rule is not None:
        return _by_rule(rule, policy)
    if is_dangerous(argv):
        asked = _ask_if_allowed(policy, "sandbox_approval", "dangerous command", None, DANGEROUS)
        # Where nobody can be asked, only what takes files away for good is refused.
        if isinstance(asked, Questionable) or is_forced_removal(argv):
            return asked
    if is_known_safe(argv) and not wants_more:
        return Allowed("known to be safe")
    if policy == "untrusted":
        return Questionable("policy untrusted")
    is_open = isinstance(sandbox, DangerFullAccessSandboxPolicy | ExternalSandboxSandboxPolicy)
    if not wants_more or is_open:
        return Allowed(f"policy {name_of(policy)}")
    return _ask_if_allowed(policy, "sandbox_approval", "asks for more", None, NEVER_ESCALATE)


def judge_retry(policy: AskForApproval) -> Judgement:
    """Judge whether a command that the sandbox stopped may be tried without it."""
    reason = "command failed; retry without sandbox?"
    switches = granular(policy)
    if policy in ("on-failure", "untrusted") or (switches and switches.sandbox_approval):
        return Questionable(f"policy {name_of(policy)}", reason)
    return Forbidden(f"policy {name_of(policy)}", "the sandbox stopped the command")


def judge_input(policy: AskForApproval, reason: str) -> Judgement:
    """Judge input for a command that may do more than one that is started now."""
    return _ask_if_allowed(policy, "sandbox_approval", "may do more", reason, NEVER_TYPE)


def judge_edit(policy: AskForApproval, sandbox: SandboxPolicy, *, is_inside: bool) -> Judgement:
    """Judge edits of files; `is_inside` says that all of them lie where the sandbox may write."""
    if policy == "untrusted":
        return Questionable("policy untrusted")
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


def _by_rule(rule: Rule, policy: AskForApproval) -> Judgement:
    by = f"rule {rule.source}"
    match rule.decision:
        case "allow":
            return Allowed(by, is_free=True)
        case "forbidden":
            return Forbidden(by, rule.justification or f"forbidden by {by}")
        case _:
            reason = "approval required by a rule, but nobody may be asked"
            return _ask_if_allowed(policy, "rules", by, rule.justification, reason)


def _ask_if_allowed(
    policy: AskForApproval, kind: Kind, by: str, reason: str | None, refusal: str
) -> Judgement:
    switches = granular(policy)
    if policy == "never" or (switches is not None and not getattr(switches, kind)):
        return Forbidden(f"policy {name_of(policy)}", refusal)
    return Questionable(by, reason)
