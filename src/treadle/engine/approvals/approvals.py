"""Judges the actions of the agent, and requests approval where the policy requires it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

from treadle.engine.approvals.grants import Grants
from treadle.engine.approvals.human import ask_person
from treadle.engine.approvals.judgement import (
    Allowed,
    Forbidden,
    Judgement,
    NeedsApproval,
    Rule,
    judge_command,
    judge_edit,
    judge_retry,
)
from treadle.engine.approvals.permission import (
    RETRY,
    ApprovalUnavailable,
    CommandRequest,
    Denied,
    Permission,
)
from treadle.engine.commands.actions import actions_of
from treadle.engine.commands.rules import (
    Rules,
    amendment_for,
    append_network_rule,
    append_rule,
    warm_caches,
)
from treadle.engine.errors import TurnCancelled
from treadle.engine.events.server_requests import ServerRequestRefused
from treadle.engine.hooks.uses import CommandUse, EditUse, RequestedUse
from treadle.engine.reviewed import Details, details_of_command, details_of_edits, links_in, touched
from treadle.engine.terminals.unconfined_commands import (
    permit_approved,
    permit_by_rule,
    permit_reading,
)
from treadle.protocol import notifications as n
from treadle.protocol.approval import (
    AcceptWithExecpolicyAmendment,
    ApplyPatchGuardianApprovalReviewAction,
    CommandExecutionApprovalDecision,
    CommandExecutionApprovalDecisionDetail,
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    CommandGuardianApprovalReviewAction,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
    GuardianApprovalReviewAction,
)
from treadle.protocol.error import WarningNotification
from treadle.protocol.permission import AdditionalPermissionProfile, GrantedPermissionProfile
from treadle.protocol.server_requests import (
    ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
    ITEM_FILE_CHANGE_REQUEST_APPROVAL,
)
from treadle.sandbox.policy import Confinement
from treadle.shell.scripts import display
from treadle.store.records import Decided

if TYPE_CHECKING:
    from treadle.engine.approvals.guardian import Guardian
    from treadle.engine.approvals.network import HostApprovals
    from treadle.engine.approvals.transcript import FindConversation
    from treadle.engine.conversation.model_context import ModelContext
    from treadle.engine.hooks.thread_hooks import ThreadHooks
    from treadle.engine.patch.work import Draft
    from treadle.engine.settings import RunSettings
    from treadle.engine.state import ThreadState
    from treadle.engine.turn import ActiveTurn

D = TypeVar("D", CommandExecutionRequestApprovalResponse, FileChangeRequestApprovalResponse)

LONG_COMMAND: Final = 4096
"""Commands with more characters are analysed off the event loop."""

BY_USER: Final = "rejected by user"
BY_ERROR: Final = "approval request failed"


class Approvals:
    """The approvals of one thread: what is granted, and how to request more."""

    def __init__(
        self,
        thread: ThreadState,
        context: ModelContext,
        find_conversation: FindConversation,
        hooks: ThreadHooks,
    ) -> None:
        self.hooks = hooks
        self.grants = Grants(thread.log)
        self._thread = thread
        self._context = context
        self._find_conversation = find_conversation
        self._warned: set[str] = set()

    @cached_property
    def hosts(self) -> HostApprovals:
        """The approved hosts; created by the first command that is limited to some hosts."""
        from treadle.engine.approvals.network import HostApprovals

        return HostApprovals(self, self._thread, self._context)

    @cached_property
    def guardian(self) -> Guardian:
        """Decides on the user's behalf; created for the first review."""
        from treadle.engine.approvals.guardian import Guardian

        return Guardian(self._thread, self._context, self._find_conversation, self.hooks)

    def confinement(self, turn: ActiveTurn, *extra: AdditionalPermissionProfile) -> Confinement:
        """What commands of the turn may do without approval, or with permissions besides."""
        return self._confine(turn, *extra)

    def grant(
        self, turn: ActiveTurn, profile: GrantedPermissionProfile, scope: Literal["turn", "session"]
    ) -> None:
        """Widen what commands may do, for the turn or for the session."""
        added = AdditionalPermissionProfile(profile.file_system, profile.network)
        self.grants.add_permissions(turn, added, scope)

    async def command(
        self, turn: ActiveTurn, request: CommandRequest, *, before: Callable[[], None]
    ) -> Permission:
        """Judge a command, and request approval if needed; calls `before` before a request.

        Raises:
            Denied: it may not run.
            ApprovalUnavailable: there was no usable answer.
            TurnCancelled: the user cancelled the turn.
        """
        settings = self._thread.settings_of(turn)
        rules = self.rules(turn)
        usual = wider = self._confine(turn)
        if request.additional is not None:
            wider = self._confine(turn, request.additional)
        if sum(map(len, request.argv)) > LONG_COMMAND:
            await self._thread.services.text_workers.run(warm_caches, request.argv, rules)
        judgement = judge_command(
            request.argv,
            policy=settings.approval_policy,
            sandbox=settings.enforced_sandbox,
            rule=_rule_for(rules, request, settings),
            wants_more=request.escalated or wider != usual,
        )
        asked = self.hooks.asked.get(request.call_id)
        judgement = _as_hooks_ask(judgement, asked)
        # Approval of a command in the sandbox does not cover running it outside.
        is_free = request.escalated or usual.is_unrestricted
        is_personal = isinstance(judgement, NeedsApproval) and judgement.is_personal
        may_be_known = (
            asked is None and not is_personal and not (is_free and settings.changes_nothing)
        )
        is_known = may_be_known and self.grants.has_command(request.key_for(is_free=is_free))
        if isinstance(judgement, Allowed | Forbidden) or is_known:
            by = "approved for the session" if is_known else judgement.by
            self._record(turn, request.call_id, display(request.argv), by, judgement)
        if isinstance(judgement, Forbidden):
            before()
            raise Denied(judgement.reason)
        if isinstance(judgement, Allowed):
            if turn.reviews_all:
                is_free = judgement.is_free or usual.is_unrestricted
                await self._review_command(turn, request, before, is_free=is_free)
            return await self._permit(turn, request, usual, judgement)
        if is_personal:
            await ask_person(self._thread, turn, request, judgement.reason)
        elif not is_known or turn.reviews_all:
            await self._ask_command(turn, request, rules, judgement.reason, before=before)
        if request.escalated:
            return permit_approved(self._thread, turn, request, usual)
        return Permission(wider, was_asked=True)

    async def _permit(
        self, turn: ActiveTurn, request: CommandRequest, usual: Confinement, judgement: Allowed
    ) -> Permission:
        """Permit a command for which no approval was requested."""
        if judgement.is_free:
            return await permit_by_rule(self._thread, turn, request, usual)
        if judgement.by_text:
            return permit_reading(self._thread, turn, request, usual)
        return Permission(usual, was_asked=False)

    def has_pending_retry(self, turn: ActiveTurn, request: CommandRequest) -> bool:
        """Whether an earlier server process requested a retry of this command."""
        return self._thread.server_requests.was_left_open(turn, request.call_id + RETRY)

    async def retry(
        self, turn: ActiveTurn, request: CommandRequest, *, before: Callable[[], None] | None = None
    ) -> Permission:
        """Judge whether a command that the sandbox seems to have stopped may run without it.

        Raises:
            Denied: it may not.
            ApprovalUnavailable: there was no usable answer.
            TurnCancelled: the user cancelled the turn.
        """
        judgement = judge_retry(self._thread.settings_of(turn).approval_policy)
        if isinstance(judgement, Forbidden):
            raise Denied(judgement.reason)
        # Approval to run in the sandbox, even with more permissions, does not cover leaving it.
        reason = None if isinstance(judgement, Allowed) else judgement.reason
        rules = self.rules(turn)
        rule = rules.check(request.argv)
        if rule is not None and rule.decision == "prompt-user":
            await ask_person(self._thread, turn, request, reason, suffix=RETRY)
        else:
            await self._ask_command(turn, request, rules, reason, before=before, suffix=RETRY)
        return permit_approved(self._thread, turn, request, self._confine(turn))

    async def file_change(
        self,
        turn: ActiveTurn,
        call_id: str,
        patch: Draft,
        cwd: str,
        *,
        before: Callable[[], None],
    ) -> bool:
        """Judge edits, and request approval if needed; return whether approval was requested.

        Raises:
            Denied: they may not be made.
            ApprovalUnavailable: there was no usable answer.
            TurnCancelled: the user cancelled the turn.
        """
        settings = self._thread.settings_of(turn)
        bounds = self._confine(turn)
        paths = touched(patch.judged())
        # In a worker: the paths may be many, and deep.
        workers = self._thread.services.patches.workers
        is_inside, details = await workers.run(_examine, patch, bounds, paths)
        judgement = judge_edit(
            settings.approval_policy, settings.enforced_sandbox, is_inside=is_inside
        )
        asked = self.hooks.asked.get(call_id)
        judgement = _as_hooks_ask(judgement, asked)
        is_known = asked is None and self.grants.has_files(paths)
        if isinstance(judgement, Allowed | Forbidden) or is_known:
            by = "approved for the session" if is_known else judgement.by
            self._record(turn, call_id, f"edit {', '.join(paths)}", by, judgement)
        if isinstance(judgement, Forbidden):
            raise Denied(judgement.reason)
        action = ApplyPatchGuardianApprovalReviewAction(cwd, list(paths))
        if isinstance(judgement, Allowed) or is_known:
            return turn.reviews_all and await self.guardian_allows(
                turn, call_id, action, None, before, details=details
            )
        params = FileChangeRequestApprovalParams(
            item_id=call_id,
            started_at_ms=turn.clock(),
            thread_id=turn.thread_id,
            turn_id=turn.id,
            reason=judgement.reason or links_in(patch),
        )
        if await self.hooks_allow(turn, call_id, EditUse(patch.text)):
            return True
        if not await self.guardian_allows(
            turn, call_id, action, params.reason, before, details=details
        ):
            await self._ask_files(turn, params, paths, before)
        return True

    def rules(self, turn: ActiveTurn) -> Rules:
        """The rules that apply to the commands of a turn."""
        rules = self._thread.services.rules(self._thread.settings_of(turn).cwd)
        for text in rules.warnings:
            if text not in self._warned:
                self._warned.add(text)
                self._thread.log.publish(n.WARNING, WarningNotification(text, turn.thread_id))
        return rules

    # -- requests

    async def _ask_command(
        self,
        turn: ActiveTurn,
        request: CommandRequest,
        rules: Rules,
        reason: str | None,
        *,
        before: Callable[[], None] | None = None,
        suffix: str = "",
    ) -> None:
        use = CommandUse(request.argv, request.justification)
        if await self.hooks_allow(turn, request.call_id, use, key=request.call_id + suffix):
            return
        is_free = request.escalated or bool(suffix) or self._confine(turn).is_unrestricted
        if await self._review_command(turn, request, before, is_free=is_free):
            return
        params = self._command_params(turn, request, rules, reason)
        accept = CommandExecutionRequestApprovalResponse("accept")
        try:
            answer = await self._thread.server_requests.send(
                ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
                params,
                turn=turn,
                key=request.call_id + suffix,
                call_id=request.call_id,
                flag="waitingOnApproval",
                before=before,
                default=self.on_deadline(accept),
            )
        except ServerRequestRefused as refusal:
            raise ApprovalUnavailable(BY_ERROR) from refusal
        await self._apply(turn, request, answer.decision)

    def _command_params(
        self, turn: ActiveTurn, request: CommandRequest, rules: Rules, reason: str | None
    ) -> CommandExecutionRequestApprovalParams:
        proposed = amendment_for(
            request.argv, rules, prefix_rule=request.prefix_rule, escalated=request.escalated
        )
        rule = rules.check(request.argv)
        is_ruled = rule is not None and rule.decision == "prompt"
        decisions: list[CommandExecutionApprovalDecision] = ["accept"]
        if request.additional is not None or is_ruled:
            pass  # a new rule or a session grant would allow more than this request
        elif proposed:
            amendment = AcceptWithExecpolicyAmendment(proposed)
            decisions.append(
                CommandExecutionApprovalDecisionDetail(accept_with_execpolicy_amendment=amendment)
            )
        else:
            decisions.append("acceptForSession")
        decisions.append("cancel")
        return CommandExecutionRequestApprovalParams(
            item_id=request.call_id,
            started_at_ms=turn.clock(),
            thread_id=turn.thread_id,
            turn_id=turn.id,
            additional_permissions=request.additional,
            available_decisions=decisions,
            command=display(request.argv),
            command_actions=actions_of(request.argv, request.cwd),
            cwd=request.cwd,
            environment_id="local",
            proposed_execpolicy_amendment=proposed or None,
            # The effect of an approval matters more than the model's justification.
            reason=reason or request.justification,
        )

    async def _apply(
        self, turn: ActiveTurn, request: CommandRequest, decision: CommandExecutionApprovalDecision
    ) -> None:
        """Apply the user's decision.

        Raises:
            Denied: the user declined.
            ApprovalUnavailable: the rule in the answer is invalid.
            TurnCancelled: the user declined and cancelled the turn.
        """
        if decision == "cancel":
            raise TurnCancelled
        if decision == "decline":
            raise Denied(BY_USER)
        if decision == "acceptForSession":
            is_free = request.escalated or self._confine(turn).is_unrestricted
            self.grants.add_command(turn, request.key_for(is_free=is_free))
        if isinstance(decision, CommandExecutionApprovalDecisionDetail):
            await self._amend(turn, decision)

    async def _amend(
        self, turn: ActiveTurn, decision: CommandExecutionApprovalDecisionDetail
    ) -> None:
        """Store a rule; the command is allowed even if storing fails."""
        path = self._thread.services.home / "rules" / "default.rules"
        commands = decision.accept_with_execpolicy_amendment
        network = decision.apply_network_policy_amendment
        workers = self._thread.services.file_workers
        try:
            if commands is not None:
                await workers.run(append_rule, path, commands.execpolicy_amendment)
            if network is not None:
                await workers.run(append_network_rule, path, network.network_policy_amendment)
        except ValueError as error:
            raise ApprovalUnavailable(BY_ERROR) from error
        except OSError as error:
            text = f"failed to store the rule: {error}"
            self._thread.log.publish(n.WARNING, WarningNotification(text, turn.thread_id))
        if network is not None and network.network_policy_amendment.action == "deny":
            raise Denied(BY_USER)

    async def _ask_files(
        self,
        turn: ActiveTurn,
        params: FileChangeRequestApprovalParams,
        paths: Sequence[str],
        before: Callable[[], None],
    ) -> None:
        try:
            answer = await self._thread.server_requests.send(
                ITEM_FILE_CHANGE_REQUEST_APPROVAL,
                params,
                turn=turn,
                key=params.item_id,
                flag="waitingOnApproval",
                before=before,
                default=self.on_deadline(FileChangeRequestApprovalResponse("accept")),
            )
        except ServerRequestRefused as refusal:
            raise ApprovalUnavailable(BY_ERROR) from refusal
        if answer.decision == "cancel":
            raise TurnCancelled
        if answer.decision == "decline":
            raise Denied(BY_USER)
        if answer.decision == "acceptForSession":
            self.grants.add_files(turn, paths)

    async def _review_command(
        self,
        turn: ActiveTurn,
        request: CommandRequest,
        before: Callable[[], None] | None,
        *,
        is_free: bool,
    ) -> bool:
        shown, why = display(request.argv), request.justification
        action = CommandGuardianApprovalReviewAction(shown, request.cwd, "unifiedExec")
        details = details_of_command(request, is_free=is_free)
        return await self.guardian_allows(
            turn, request.call_id, action, why, before, details=details
        )

    async def guardian_allows(
        self,
        turn: ActiveTurn,
        call_id: str,
        action: GuardianApprovalReviewAction,
        justification: str | None,
        before: Callable[[], None] | None,
        *,
        details: Details | None = None,
    ) -> bool:
        """Let the guardian decide if the settings say so; return whether it did.

        Raises:
            Denied: the guardian denied it.
        """
        if self._thread.settings_of(turn).reviewer == "user":
            return False
        if before is not None:
            before()
        review = await self.guardian.review(turn, action, call_id, justification, details=details)
        if review.status != "approved":
            raise Denied(
                review.rationale or f"the automatic review ended with status {review.status}"
            )
        return True

    async def hooks_allow(
        self, turn: ActiveTurn, call_id: str, use: RequestedUse, *, key: str | None = None
    ) -> bool:
        """Let hooks decide about an action that needs approval; return whether they allowed it.

        A request that an earlier server process left open is the user's to answer.

        Raises:
            Denied: a hook denied it, or failed.
        """
        if not self.hooks.has("permissionRequest"):
            return False
        key = key or call_id
        if self._thread.server_requests.was_left_open(turn, key):
            return False
        from treadle.engine.hooks.permission import hooks_allow

        return await hooks_allow(self.hooks, turn, call_id, use, key)

    def on_deadline(self, accept: D) -> D:
        """The answer to use if none arrives before the deadline."""
        limits = self._thread.settings.request_deadline
        decision = "decline" if limits is None else limits.decision
        return msgspec.structs.replace(accept, decision=decision)

    def _confine(self, turn: ActiveTurn, *extra: AdditionalPermissionProfile) -> Confinement:
        settings = self._thread.settings_of(turn)
        # Grants for doing the work do not apply to planning it.
        granted = extra if settings.changes_nothing else (*self.grants.permissions(turn), *extra)
        # The thread's folder, not the command's: the model chooses where a command runs.
        boundary = self._thread.services.boundary
        confined = boundary.confine(settings.enforced_sandbox, settings.cwd, granted=granted)
        return confined if settings.network is None else settings.network.narrow(confined)

    def _record(
        self, turn: ActiveTurn, call_id: str, action: str, by: str, judgement: Judgement
    ) -> None:
        """Record a decision that was made without a request."""
        decision = "forbidden" if isinstance(judgement, Forbidden) else "allowed"
        self._thread.log.record(Decided(call_id, turn.id, action, decision, by, turn.clock()))


def _rule_for(rules: Rules, request: CommandRequest, settings: RunSettings) -> Rule | None:
    """The rule that applies to a command; rules that allow work do not apply to planning it."""
    rule = rules.check(request.argv)
    return None if settings.changes_nothing and rule and rule.decision == "allow" else rule


def _as_hooks_ask(judgement: Judgement, asked: str | None) -> Judgement:
    """Require approval where a hook does, with its reason."""
    if asked is not None and isinstance(judgement, Allowed):
        return NeedsApproval("hook", asked)
    return judgement


def _examine(patch: Draft, bounds: Confinement, paths: Sequence[str]) -> tuple[bool, Details]:
    """Return whether commands may write all the files of a patch, and what the guardian sees."""
    return all(map(bounds.may_write, paths)), details_of_edits(patch, bounds)
