"""Decides which hosts the commands of a thread may reach: by lists, rules and the user."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct, field

from treadle.engine.approvals.approvals import BY_USER
from treadle.engine.approvals.permission import Denied
from treadle.engine.commands.rules import Rules, append_network_rule
from treadle.engine.conversation.input import message
from treadle.engine.events.server_requests import ServerRequestRefused
from treadle.engine.hooks.uses import CommandUse
from treadle.protocol import notifications as n
from treadle.protocol.approval import (
    ApplyNetworkPolicyAmendment,
    CommandExecutionApprovalDecision,
    CommandExecutionApprovalDecisionDetail,
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    NetworkAccessGuardianApprovalReviewAction,
)
from treadle.protocol.error import WarningNotification
from treadle.protocol.network import NetworkApprovalContext, NetworkPolicyAmendment
from treadle.protocol.server_requests import ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL
from treadle.sandbox.network.environment import environment
from treadle.sandbox.network.hosts import Address, is_local_host, meanings, normal
from treadle.sandbox.network.policy import Blocked, Destination, NetworkPolicy
from treadle.sandbox.network.proxy import EgressProxy
from treadle.sandbox.network.tunnel import Resolve
from treadle.store.records import Decided
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.approvals.approvals import Approvals
    from treadle.engine.commands.rule_file import Protocol
    from treadle.engine.conversation.model_context import ModelContext
    from treadle.engine.state import ThreadState
    from treadle.engine.terminals.run import CommandRun
    from treadle.engine.turn import ActiveTurn

_Decision: TypeAlias = CommandExecutionApprovalDecision | None
_Key: TypeAlias = tuple[str, Destination]

MAX_RECORDED: Final = 100
"""The most hosts recorded for one command, which controls their names and number."""
_SHOWN: Final = {"socks5Tcp": "socks5-tcp"}
# The protocol names that rules use.
_RULE_PROTOCOLS: Final[dict[str, Protocol]] = {
    "http": "http",
    "https": "https",
    "socks5Tcp": "socks5_tcp",
}


class _HostRequest(Struct, eq=False):
    """An approval request for a host, shared by the connections that wait for its answer."""

    settled: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0
    # `None` until an answer arrives, and if none does.
    decision: _Decision = None
    task: asyncio.Task[None] | None = None


def create_fixed_egress_proxy(
    policy: NetworkPolicy, rules: Rules, tasks: BackgroundTasks, *, resolve: Resolve | None = None
) -> EgressProxy:
    """Create the egress proxy of a command for which no approval is requested."""

    async def judge(destination: Destination) -> None:
        if _listed(policy, rules, destination.host) is None:
            raise Blocked("not_allowed")

    check = partial(_check_address, rules)
    return EgressProxy(policy, tasks, judge=judge, judge_address=check, resolve=resolve)


def _check_address(rules: Rules, address: Address) -> None:
    """Check an address of an allowed host against the rules.

    Raises:
        Blocked: a rule forbids the address.
    """
    verdicts = [rules.check_host(str(each)) for each in meanings(address)]
    if any(verdict and verdict.decision == "forbidden" for verdict in verdicts):
        raise Blocked("denied")


def _listed(policy: NetworkPolicy, rules: Rules, host: str) -> str | None:
    """What allows a host without approval; `None` if approval may be requested.

    Raises:
        Blocked: it is denied, and no approval can change that.
    """
    rule = rules.check_host(host)
    listed, ruled = policy.permission(host), rule.decision if rule else None
    if listed == "deny" or ruled == "forbidden":
        raise Blocked("denied")
    if policy.is_fixed:
        ruled = None
    if ruled == "allow" and rule is not None:
        return f"rule {rule.source}"
    # A wildcard does not cover local hosts: they must be listed by name.
    if is_local_host(host) and not policy.allows_local and not policy.allows_by_name(host):
        raise Blocked("not_allowed_local")
    if listed == "allow" and ruled is None:
        return "allowed domain"
    if policy.is_fixed:
        raise Blocked("not_allowed")
    return None


class HostApprovals:
    """The hosts that commands of one thread may reach, and how to request more."""

    def __init__(self, approvals: Approvals, thread: ThreadState, context: ModelContext) -> None:
        self._approvals = approvals
        self._thread = thread
        self._context = context
        # While the thread is loaded. Includes the port, as the user saw it.
        self._accepted: set[Destination] = set()
        self._requests: dict[_Key, _HostRequest] = {}

    def create_proxy(self, run: CommandRun) -> tuple[EgressProxy, dict[str, str]]:
        """Create the egress proxy of a command that is about to start, and its environment."""
        policy = self._thread.settings_of(run.turn).network or NetworkPolicy()
        return self._create_proxy(run, policy), environment(policy)

    def _create_proxy(self, run: CommandRun, policy: NetworkPolicy) -> EgressProxy:
        recorded: set[Destination] = set()

        async def judge(destination: Destination) -> None:
            by = await self._judge(run, policy, destination)
            if destination not in recorded and len(recorded) < MAX_RECORDED:
                recorded.add(destination)
                self._record(run, destination, "allowed", by)

        def on_blocked(destination: Destination, blocked: Blocked) -> None:
            if destination in recorded:
                return
            if len(recorded) == MAX_RECORDED:
                run.note("Network access to further hosts was blocked.")
                return
            recorded.add(destination)
            self._record(run, destination, "forbidden", blocked.reason)
            run.note(f'Network access to "{destination.host}" was blocked: {blocked}.')

        def judge_address(address: Address) -> None:
            _check_address(self._approvals.rules(run.turn), address)

        return EgressProxy(
            policy,
            self._thread.services.tasks,
            judge=judge,
            judge_address=judge_address,
            on_blocked=on_blocked,
        )

    async def _judge(self, run: CommandRun, policy: NetworkPolicy, destination: Destination) -> str:
        """Judge a connection, and request approval if needed; return what allows it.

        Raises:
            Blocked: it may not be made.
        """
        turn = run.turn
        by = _listed(policy, self._approvals.rules(turn), destination.host)
        if by is not None:
            return by
        if destination in self._accepted:
            return "approved for the session"
        # A command may outlive its turn, after which no approval can be requested.
        if turn.is_over or self._thread.settings_of(turn).approval_policy == "never":
            raise Blocked("not_allowed", "decider")
        with run.timeout.paused():
            decision = await self._ask(run, destination)
        if not _is_accepted(decision):
            self._refuse(run, decision)
            raise Blocked("not_allowed", "decider")
        return "approved"

    def _refuse(self, run: CommandRun, decision: _Decision) -> None:
        """Kill a denied command; without an answer or on `cancel`, the end of the turn does it."""
        if decision is not None and decision != "cancel":
            run.refuse(Denied(BY_USER))

    # -- requests

    async def _ask(self, run: CommandRun, destination: Destination) -> _Decision:
        """Wait for the answer about a host; a turn has one open request per host."""
        turn, key = run.turn, (run.turn.id, destination)
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = _HostRequest()
            work = self._decide(run, destination, request)
            task = request.task = self._thread.services.tasks.spawn(work, f"ask {destination.host}")
            task.add_done_callback(lambda _task: self._on_settled(key))
            turn.at_end(lambda: _cancel(task))
        request.waiting += 1
        try:
            await request.settled.wait()
        finally:
            request.waiting -= 1
            if not request.waiting and request.task is not None:
                request.task.cancel()  # no connection waits any more
        return request.decision

    def _on_settled(self, key: _Key) -> None:
        self._requests.pop(key).settled.set()

    async def _decide(
        self, run: CommandRun, destination: Destination, request: _HostRequest
    ) -> None:
        turn = run.turn
        host, port, protocol = destination
        # Not the id of an item of the turn; the format is the reference's.
        item_id = f"network#local#{_SHOWN.get(protocol, protocol)}#{host}#{port}#{uuid7()}"
        try:
            use = CommandUse(("network-access", f"{protocol}://{host}:{port}"))
            if await self._approvals.hooks_allow(turn, run.item.id, use, key=item_id):
                request.decision = "accept"
                return
            if await self._is_reviewed(turn, destination, item_id):
                request.decision = "accept"
                return
        except Denied:
            request.decision = "decline"
            return
        decision = await self._decision(run, destination, item_id)
        request.decision = await self._apply(turn, destination, decision)

    async def _is_reviewed(self, turn: ActiveTurn, destination: Destination, item_id: str) -> bool:
        host, port, protocol = destination
        target = f"{protocol}://{host}:{port}"
        action = NetworkAccessGuardianApprovalReviewAction(host, port, protocol, target)
        return await self._approvals.guardian_allows(turn, item_id, action, None, None)

    async def _decision(
        self, run: CommandRun, destination: Destination, item_id: str
    ) -> CommandExecutionApprovalDecision:
        turn, thread, host = run.turn, self._thread, destination.host
        allow = NetworkPolicyAmendment(action="allow", host=host)
        params = CommandExecutionRequestApprovalParams(
            item_id=item_id,
            started_at_ms=turn.clock(),
            thread_id=turn.thread_id,
            turn_id=turn.id,
            available_decisions=[
                "accept",
                "acceptForSession",
                CommandExecutionApprovalDecisionDetail(
                    apply_network_policy_amendment=ApplyNetworkPolicyAmendment(allow)
                ),
                "cancel",
            ],
            environment_id="local",
            network_approval_context=NetworkApprovalContext(host, destination.protocol),
            proposed_network_policy_amendments=[
                allow,
                NetworkPolicyAmendment(action="deny", host=host),
            ],
            reason=f"{host} is not in the allowed_domains",
        )
        accept = CommandExecutionRequestApprovalResponse("accept")
        try:
            answer = await thread.server_requests.send(
                ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
                params,
                turn=turn,
                key=item_id,
                call_id=run.item.id,
                flag="waitingOnApproval",
                default=self._approvals.on_deadline(accept),
                # The command ends with the server, and so does its connection.
                resumable=False,
            )
        except ServerRequestRefused:
            return "decline"
        return answer.decision

    # -- answers

    async def _apply(
        self, turn: ActiveTurn, destination: Destination, decision: CommandExecutionApprovalDecision
    ) -> CommandExecutionApprovalDecision:
        """Apply the user's decision; return the decision about the connection."""
        if decision == "acceptForSession":
            self._accepted.add(destination)
        elif decision == "cancel":
            # Another one may be active by now.
            if self._thread.turn is turn:
                turn.stop()
        elif isinstance(decision, CommandExecutionApprovalDecisionDetail):
            amendment = decision.apply_network_policy_amendment
            if amendment is None or not await self._amend(
                turn, destination, amendment.network_policy_amendment
            ):
                return "decline"
        return decision

    async def _amend(
        self, turn: ActiveTurn, destination: Destination, amendment: NetworkPolicyAmendment
    ) -> bool:
        """Store a rule, which takes effect at once; false if it is for another host."""
        thread = self._thread
        path = thread.services.home / "rules" / "default.rules"
        if not _is_same(amendment.host, destination.host):
            text = f"it is for {amendment.host!r}, not {destination.host!r}"
            self._warn(turn, f"ignored the network rule: {text}")
            return False
        try:
            await thread.services.file_workers.run(
                append_network_rule, path, amendment, _RULE_PROTOCOLS[destination.protocol]
            )
        except OSError as error:
            self._warn(turn, f"failed to store the rule: {error}")
            if amendment.action == "allow":
                self._accepted.add(destination)
            return True
        done = "allowed" if amendment.action == "allow" else "denied"
        text = f"The user permanently {done} {destination.host} with a network rule."
        self._context.add_note(message("developer", text))
        return True

    def _warn(self, turn: ActiveTurn, text: str) -> None:
        self._thread.log.publish(n.WARNING, WarningNotification(text, turn.thread_id))

    def _record(self, run: CommandRun, destination: Destination, decision: str, by: str) -> None:
        """Record a decision about a host."""
        host, port, protocol = destination
        action = f"connect to {protocol}://{host}:{port}"
        turn = run.turn
        self._thread.log.record(Decided(run.item.id, turn.id, action, decision, by, turn.clock()))


def _is_same(name: str, host: str) -> bool:
    try:
        return normal(name) == host
    except ValueError:
        return False


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _is_accepted(decision: _Decision) -> bool:
    if isinstance(decision, CommandExecutionApprovalDecisionDetail):
        amendment = decision.apply_network_policy_amendment
        return amendment is not None and amendment.network_policy_amendment.action == "allow"
    return decision in ("accept", "acceptForSession")
