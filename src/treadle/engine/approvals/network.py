"""Which hosts the commands of a thread reach: judged by lists and rules, then by the user."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from treadle.engine.approvals.approvals import BY_USER
from treadle.engine.approvals.permission import Denied
from treadle.engine.commands.rules import Rules, append_network_rule
from treadle.engine.conversation.input import message
from treadle.engine.errors import EngineError
from treadle.engine.events.server_requests import ServerRequestRefused
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
    from treadle.engine.commands.rule_file import Protocol
    from treadle.engine.terminals.run import CommandRun
    from treadle.engine.thread import LoadedThread
    from treadle.engine.turn import ActiveTurn

_Decision: TypeAlias = CommandExecutionApprovalDecision | None
_Key: TypeAlias = tuple[str, Destination]

MAX_NOTED: Final = 100
"""How many hosts are recorded for one command; it chooses their names and their number."""
_SHOWN: Final = {"socks5Tcp": "socks5-tcp"}
# The protocols as rules spell them.
_RULED: Final[dict[str, Protocol]] = {"http": "http", "https": "https", "socks5Tcp": "socks5_tcp"}


@dataclass(slots=True, eq=False)
class _Question:
    """A question about a host, and how many connections wait for its answer."""

    settled: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0
    # Null while there is none, and if none comes.
    decision: _Decision = None
    task: asyncio.Task[None] | None = None


def open_gate(thread: LoadedThread, run: CommandRun) -> tuple[EgressProxy, dict[str, str]]:
    """The way out for a command that is kept to chosen hosts, and what it is told of it."""
    hosts = thread.approvals.hosts = thread.approvals.hosts or HostApprovals(thread)
    policy = thread.settings_of(run.turn).network or NetworkPolicy()
    return hosts.gate(run, policy), environment(policy)


def closed_gate(
    policy: NetworkPolicy, rules: Rules, tasks: BackgroundTasks, *, resolve: Resolve | None = None
) -> EgressProxy:
    """The way out for a command about which nobody is asked."""

    async def judge(destination: Destination) -> None:
        if _listed(policy, rules, destination.host) is None:
            raise Blocked("not_allowed")

    check = partial(_check_address, rules)
    return EgressProxy(policy, tasks, judge=judge, judge_address=check, resolve=resolve)


def _check_address(rules: Rules, address: Address) -> None:
    """Judge by the rules an address that an allowed host leads to.

    Raises:
        Blocked: a rule forbids the address.
    """
    verdicts = [rules.check_host(str(each)) for each in meanings(address)]
    if any(verdict and verdict.decision == "forbidden" for verdict in verdicts):
        raise Blocked("denied")


def _listed(policy: NetworkPolicy, rules: Rules, host: str) -> str | None:
    """What allows a host, nobody asked; `None` if somebody may be.

    Raises:
        Blocked: it is denied, and nobody may change that.
    """
    rule = rules.check_host(host)
    listed, ruled = policy.permission(host), rule.decision if rule else None
    if listed == "deny" or ruled == "forbidden":
        raise Blocked("denied")
    if policy.is_fixed:
        ruled = None
    if ruled == "allow" and rule is not None:
        return f"rule {rule.source}"
    # A wildcard is about names that nobody can list, which local hosts are not.
    if is_local_host(host) and not policy.allows_local and not policy.names(host):
        raise Blocked("not_allowed_local")
    if listed == "allow" and ruled is None:
        return "allowed domain"
    if policy.is_fixed:
        raise Blocked("not_allowed")
    return None


class HostApprovals:
    """What the commands of one thread may reach, and how to come by more."""

    def __init__(self, thread: LoadedThread) -> None:
        self._thread = thread
        # Until the thread is let go of: to the port, as the user was shown it.
        self._accepted: set[Destination] = set()
        self._questions: dict[_Key, _Question] = {}

    def gate(self, run: CommandRun, policy: NetworkPolicy) -> EgressProxy:
        """The way out for a command that is about to start."""
        noted: set[Destination] = set()

        async def judge(destination: Destination) -> None:
            by = await self._judge(run, policy, destination)
            if destination not in noted and len(noted) < MAX_NOTED:
                noted.add(destination)
                self._note(run, destination, "allowed", by)

        def on_blocked(destination: Destination, blocked: Blocked) -> None:
            if destination in noted:
                return
            if len(noted) == MAX_NOTED:
                run.note("Network access to further hosts was blocked.")
                return
            noted.add(destination)
            self._note(run, destination, "forbidden", blocked.reason)
            run.note(f'Network access to "{destination.host}" was blocked: {blocked}.')

        def judge_address(address: Address) -> None:
            _check_address(self._thread.approvals.rules(run.turn), address)

        return EgressProxy(
            policy,
            self._thread.services.tasks,
            judge=judge,
            judge_address=judge_address,
            on_blocked=on_blocked,
        )

    async def _judge(self, run: CommandRun, policy: NetworkPolicy, destination: Destination) -> str:
        """Judge a connection, and ask about it if need be; says what allows it.

        Raises:
            Blocked: it may not be made.
        """
        turn = run.turn
        by = _listed(policy, self._thread.approvals.rules(turn), destination.host)
        if by is not None:
            return by
        if destination in self._accepted:
            return "approved for the session"
        # A command may outlive its turn, and then there is nobody to ask.
        if turn.is_over or self._thread.settings_of(turn).approval_policy == "never":
            raise Blocked("not_allowed", "decider")
        with run.patience.on_hold():
            decision = await self._ask(run, destination)
        if not _is_yes(decision):
            self._refuse(run, decision)
            raise Blocked("not_allowed", "decider")
        return "approved"

    def _refuse(self, run: CommandRun, decision: _Decision) -> None:
        """End a command that was told no; the turn's end does it where there was no answer."""
        if decision is not None and decision != "cancel":
            run.refuse(Denied(BY_USER))

    # -- asking

    async def _ask(self, run: CommandRun, destination: Destination) -> _Decision:
        """Wait for the answer to the one question about a host that is open at a time."""
        turn, key = run.turn, (run.turn.id, destination)
        question = self._questions.get(key)
        if question is None:
            question = self._questions[key] = _Question()
            work = self._put(run, destination, question)
            task = question.task = self._thread.services.tasks.spawn(
                work, f"ask {destination.host}"
            )
            task.add_done_callback(lambda _task: self._on_settled(key))
            turn.at_end(lambda: _cancel(task))
        question.waiting += 1
        try:
            await question.settled.wait()
        finally:
            question.waiting -= 1
            if not question.waiting and question.task is not None:
                question.task.cancel()  # whoever wanted to know is gone
        return question.decision

    def _on_settled(self, key: _Key) -> None:
        self._questions.pop(key).settled.set()

    async def _put(self, run: CommandRun, destination: Destination, question: _Question) -> None:
        turn = run.turn
        host, port, protocol = destination
        # It is no item of the turn; the reference names it like this.
        item_id = f"network#local#{_SHOWN.get(protocol, protocol)}#{host}#{port}#{uuid7()}"
        try:
            if await self._is_reviewed(turn, destination, item_id):
                question.decision = "accept"
                return
        except Denied:
            question.decision = "decline"
            return
        decision = await self._decision(run, destination, item_id)
        question.decision = await self._take(turn, destination, decision)

    async def _is_reviewed(self, turn: ActiveTurn, destination: Destination, item_id: str) -> bool:
        host, port, protocol = destination
        target = f"{protocol}://{host}:{port}"
        action = NetworkAccessGuardianApprovalReviewAction(host, port, protocol, target)
        return await self._thread.approvals.reviewed(turn, item_id, action, None, None)

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
            answer = await thread.server_requests.ask(
                ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
                params,
                turn=turn,
                key=item_id,
                call_id=run.item.id,
                flag="waitingOnApproval",
                default=thread.approvals.on_deadline(accept),
                # The command ends with the server, and so does its connection.
                resumable=False,
            )
        except ServerRequestRefused:
            return "decline"
        return answer.decision

    # -- taking an answer

    async def _take(
        self, turn: ActiveTurn, destination: Destination, decision: CommandExecutionApprovalDecision
    ) -> CommandExecutionApprovalDecision:
        """Act on what the user decided, once; gives what it comes to for the connection."""
        if decision == "acceptForSession":
            self._accepted.add(destination)
        elif decision == "cancel":
            with suppress(EngineError):  # it may have ended meanwhile
                self._thread.interrupt(turn.id)()
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
        """Store a rule, which is in force at once; false if it is about something else."""
        thread = self._thread
        path = thread.services.home / "rules" / "default.rules"
        if not _is_same(amendment.host, destination.host):
            text = f"it is about {amendment.host!r}, not {destination.host!r}"
            self._warn(turn, f"the network rule was not taken: {text}")
            return False
        try:
            await thread.services.file_workers.run(
                append_network_rule, path, amendment, _RULED[destination.protocol]
            )
        except OSError as error:
            self._warn(turn, f"the rule was not stored: {error}")
            if amendment.action == "allow":
                self._accepted.add(destination)
            return True
        done = "Allowed" if amendment.action == "allow" else "Denied"
        text = f"{done} for good by the user, as a network rule: {destination.host}"
        thread.add_note(message("developer", text))
        return True

    def _warn(self, turn: ActiveTurn, text: str) -> None:
        self._thread.log.publish(n.WARNING, WarningNotification(text, turn.thread_id))

    def _note(self, run: CommandRun, destination: Destination, decision: str, by: str) -> None:
        """Leave a line on what a command reached, or did not."""
        host, port, protocol = destination
        action = f"connect to {protocol}://{host}:{port}"
        turn = run.turn
        self._thread.log.record(Decided(run.item.id, turn.id, action, decision, by, turn.clock()))


def _is_same(given: str, host: str) -> bool:
    try:
        return normal(given) == host
    except ValueError:
        return False


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _is_yes(decision: _Decision) -> bool:
    if isinstance(decision, CommandExecutionApprovalDecisionDetail):
        amendment = decision.apply_network_policy_amendment
        return amendment is not None and amendment.network_policy_amendment.action == "allow"
    return decision in ("accept", "acceptForSession")
