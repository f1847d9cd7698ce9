"""Server requests: which part decides, and the answer when none does."""

from __future__ import annotations

import asyncio
import json
import queue
import shlex
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Literal

import msgspec
import pytest

from tests.client.conftest import Reach
from tests.client.fake import THREAD
from treadle import (
    ApprovalPolicy,
    ApprovalRequired,
    AsyncClient,
    CannotDecide,
    CommandApproval,
    FileChangeApproval,
    InputRequired,
    approve_all,
    approve_safe,
    deny_all,
    fail_on_ask,
)
from treadle.client.approvals import CommandDecision
from treadle.client.terminal.prompt import Terminal, terminal_policy
from treadle.protocol.account import ChatgptAuthTokensRefreshResponse
from treadle.protocol.approval import (
    AcceptWithExecpolicyAmendment,
    CommandExecutionApprovalDecisionDetail,
    CommandExecutionRequestApprovalParams,
)
from treadle.protocol.base import JsonValue
from treadle.protocol.item import AddPatchChangeKind, FileUpdateChange
from treadle.protocol.permission import AdditionalNetworkPermissions, GrantedPermissionProfile
from treadle.protocol.server_requests import CURRENT_TIME_READ
from treadle.protocol.tool import CurrentTimeReadResponse
from treadle.testing import VirtualClock

COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"
QUESTION = "item/tool/requestUserInput"
FORM = "mcpServer/elicitation/request"
TOKENS = "account/chatgptAuthTokens/refresh"
READ = {"type": "read", "command": "cat a", "name": "a", "path": "/a"}
SAFE = {"command": "/bin/bash -lc 'cat a'", "cwd": "/", "commandActions": [READ]}
UNSAFE = {
    "command": "/bin/bash -lc 'rm a'",
    "cwd": "/",
    "commandActions": [{"type": "unknown", "command": "rm a"}],
}
WANTED = {"network": {"enabled": True}, "fileSystem": None}
ASKED: list[tuple[str, JsonValue]] = [
    (COMMAND, SAFE),
    (COMMAND, UNSAFE),
    (FILES, {}),
    (PERMISSIONS, {"cwd": "/", "permissions": WANTED}),
    (QUESTION, {"isBlocking": True, "questions": [{"id": "q1", "header": "h", "question": "?"}]}),
    (FORM, {"serverName": "s", "mode": "form", "message": "m", "requestedSchema": {
        "type": "object", "properties": {}}}),
    ("execCommandApproval", {"callId": "c", "command": ["cat", "a"], "conversationId": THREAD,
                             "cwd": "/", "parsedCmd": [{**READ, "cmd": "cat a"}]}),
    ("applyPatchApproval", {"callId": "c", "conversationId": THREAD,
                            "fileChanges": {"/f": {"type": "add", "content": "x"}}}),
]  # fmt: skip
NO: list[JsonValue] = [
    {"decision": "decline"},
    {"decision": "decline"},
    {"decision": "decline"},
    {"permissions": {}, "scope": "turn", "strictAutoReview": None},
    {"answers": {}},
    {"action": "decline", "_meta": None, "content": None},
    {"decision": "denied"},
    {"decision": "denied"},
]
YES: list[JsonValue] = [
    {"decision": "accept"},
    {"decision": "accept"},
    {"decision": "accept"},
    {
        "permissions": {"network": {"enabled": True}},
        "scope": "turn",
        "strictAutoReview": None,
    },
    {"answers": {}},
    {"action": "accept", "_meta": None, "content": {}},
    {"decision": "approved"},
    {"decision": "approved"},
]


def asking(*questions: tuple[str, JsonValue]) -> str:
    """Return input that makes the server send these requests."""
    return json.dumps(questions)


async def answers_of(
    reach: Reach,
    requests: list[tuple[str, JsonValue]],
    prepare: Callable[[AsyncClient], object] = lambda _client: None,
    policy: ApprovalPolicy | None = None,
) -> list[JsonValue]:
    """Return what a client answers to some server requests."""
    async with reach("asks", approvals=policy) as (client, log), client:
        prepare(client)
        thread = await client.start_thread()
        await thread.run(asking(*requests))
        return list(log.answers().values())


async def test_a_client_without_handlers_declines_everything(server: Reach) -> None:
    """Every request is answered, and nothing is allowed by accident."""
    assert await answers_of(server, ASKED) == NO


def _raises(_ask: object) -> bool:
    raise ValueError("oops")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (deny_all, NO),
        (approve_all, YES),
        (approve_safe, [YES[0], *NO[1:6], YES[6], NO[7]]),
        (ApprovalPolicy(_raises, _raises, _raises, _raises, _raises), NO),  # type: ignore[arg-type]  # a bad one
    ],
    ids=["deny_all", "approve_all", "approve_safe", "raises"],
)
async def test_a_policy_decides(
    in_memory: Reach, policy: ApprovalPolicy, expected: list[JsonValue]
) -> None:
    """Users, 27: a handler that fails declines as well, and the turn continues."""
    assert await answers_of(in_memory, ASKED, policy=policy) == expected


async def test_handlers_see_the_request_and_their_decisions_are_sent(in_memory: Reach) -> None:
    seen: list[object] = []
    amendment = CommandExecutionApprovalDecisionDetail(
        accept_with_execpolicy_amendment=AcceptWithExecpolicyAmendment(["cat"])
    )

    def prepare(client: AsyncClient) -> None:
        @client.on_command_approval
        async def decide(ask: CommandApproval) -> CommandExecutionApprovalDecisionDetail:
            seen.append((ask.command, ask.cwd, len(ask.actions)))
            return amendment

        @client.on_file_change
        def edit(ask: FileChangeApproval) -> Literal["acceptForSession"]:
            seen.append(ask.changes)
            return "acceptForSession"

        client.on_permissions(
            lambda _ask: GrantedPermissionProfile(
                network=AdditionalNetworkPermissions(enabled=True)
            )
        )
        client.on_user_input(lambda _ask: {"q1": ["a", "b"]})
        client.on_elicitation(lambda _ask: {"name": "x"})

    answers = await answers_of(in_memory, ASKED, prepare)
    decision = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["cat"]}}
    older = {"approved_execpolicy_amendment": {"proposed_execpolicy_amendment": ["cat"]}}
    assert answers == [
        {"decision": decision},
        {"decision": decision},
        {"decision": "acceptForSession"},
        YES[3],
        {"answers": {"q1": {"answers": ["a", "b"]}}},
        {"action": "accept", "_meta": None, "content": {"name": "x"}},
        {"decision": older},
        {"decision": "approved_for_session"},
    ]
    assert seen == [
        (SAFE["command"], "/", 1),
        (UNSAFE["command"], "/", 1),
        (),
        ("cat a", "/", 1),
        [FileUpdateChange(diff="x", kind=AddPatchChangeKind(), path="/f")],
    ]


async def test_other_requests_can_be_answered_and_are_refused_by_default(in_memory: Reach) -> None:
    requests = [(TOKENS, {"reason": "unauthorized"}), ("currentTime/read", {}), ("brand/new", {})]
    refused = await answers_of(in_memory, requests)
    assert [refused[0]["code"], sorted(refused[1]), refused[2]["code"]] == [
        -32600,
        ["currentTimeAt"],
        -32600,
    ]

    def prepare(client: AsyncClient) -> None:
        client.on_token_refresh(lambda _ask: ChatgptAuthTokensRefreshResponse("token", "account"))
        client.on_request(CURRENT_TIME_READ)(lambda _ask: CurrentTimeReadResponse(5))

    assert (await answers_of(in_memory, requests, prepare))[:2] == [
        {"accessToken": "token", "chatgptAccountId": "account", "chatgptPlanType": None},
        {"currentTimeAt": 5},
    ]


async def test_a_handler_may_use_the_client_and_block_without_stopping_it(in_memory: Reach) -> None:
    """Users, 37: handlers do not run on the loop that reads."""
    threads: list[bool] = []
    async with in_memory("asks") as (client, log), client:
        released = threading.Event()

        @client.on_command_approval
        async def decide(_ask: CommandApproval) -> bool:
            await client.list_models()
            released.set()
            return True

        @client.on_file_change
        def block(_ask: FileChangeApproval) -> bool:
            threads.append(threading.current_thread() is threading.main_thread())
            return released.wait(10)

        thread = await client.start_thread()
        await thread.run(asking((COMMAND, SAFE), (FILES, {})))
        assert list(log.answers().values()) == [{"decision": "accept"}] * 2
    assert threads == [False]


async def test_a_pending_server_request_pauses_the_timeout_of_the_turn(
    in_memory: Reach, virtual_clock: VirtualClock
) -> None:
    """Users, 16: time in which a user decides does not count as idle."""
    async with in_memory("asks", turn_idle_timeout=2.0) as (client, _), client:

        @client.on_command_approval
        async def decide(_ask: CommandApproval) -> bool:
            await asyncio.sleep(20)
            return True

        thread = await client.start_thread()
        with virtual_clock:
            result = await thread.run(asking((COMMAND, SAFE)))
    assert result.turn.status == "completed"
    assert virtual_clock.elapsed >= 20


async def test_a_request_that_another_client_answered_is_withdrawn(in_memory: Reach) -> None:
    async with in_memory("asks and moves on") as (client, log), client:
        is_asked, withdrawn = asyncio.Event(), asyncio.Event()

        @client.on_command_approval
        async def decide(_ask: CommandApproval) -> bool:
            is_asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                withdrawn.set()
            return True

        thread = await client.start_thread()
        turn = await thread.start_turn("hi")
        await is_asked.wait()
        await turn.steer("somebody else said yes")
        await turn.result()
        await withdrawn.wait()
    assert log.answers() == {}


@pytest.mark.parametrize(
    ("requests", "error", "answer"),
    [
        ((COMMAND, UNSAFE), ApprovalRequired, {"decision": "cancel"}),
        (ASKED[4], InputRequired, {"answers": {}}),
    ],
    ids=["approval", "question"],
)
async def test_when_no_decision_is_possible_the_turn_ends_with_the_request(
    in_memory: Reach,
    requests: tuple[str, JsonValue],
    error: type[ApprovalRequired | InputRequired],
    answer: JsonValue,
) -> None:
    """Seed 000: fail fast where an approval is required."""
    async with in_memory("asks", approvals=fail_on_ask) as (client, log), client:
        thread = await client.start_thread()
        with pytest.raises(error) as caught:
            await thread.run(asking(requests))
        assert getattr(getattr(caught.value, "ask", None), "thread_id", None) == THREAD
        await client.close()
    assert log.answers() == {"ask-0": answer}


async def test_a_handler_may_leave_the_decision_to_the_policy(in_memory: Reach) -> None:
    async with in_memory("asks") as (client, _), client:

        @client.on_file_change
        def decide(_ask: FileChangeApproval) -> bool:
            raise CannotDecide

        thread = await client.start_thread()
        with pytest.raises(ApprovalRequired):
            await thread.run(asking((FILES, {})))


async def test_a_handler_that_exits_or_is_cancelled_has_declined(
    in_memory: Reach,
) -> None:
    def prepare(client: AsyncClient) -> None:
        @client.on_command_approval
        def leave(_ask: CommandApproval) -> bool:
            sys.exit(1)

        @client.on_file_change
        async def wait(_ask: FileChangeApproval) -> bool:
            raise asyncio.CancelledError

    answers = await answers_of(in_memory, [(COMMAND, SAFE), (FILES, {})], prepare)
    assert answers == [{"decision": "decline"}] * 2


async def test_malformed_server_requests_are_declined(in_memory: Reach) -> None:
    requests = [
        ("applyPatchApproval", {"fileChanges": {"a": {"type": "new"}}}),
        ("execCommandApproval", {"command": "ls", "parsedCmd": [5], "conversationId": None}),
        (COMMAND, {"command": ["ls"], "commandActions": "x"}),
        (PERMISSIONS, {"permissions": 7}),
    ]
    answers = await answers_of(in_memory, requests, policy=approve_safe)
    no = {"decision": "denied"}
    nothing: JsonValue = {"permissions": {}, "scope": "turn", "strictAutoReview": None}
    assert answers == [no, no, {"decision": "decline"}, nothing]


async def test_answers_in_the_terminal_are_understood(in_memory: Reach) -> None:
    lines = iter(["y\n", "stop\n", "always\n", "yes\n", "2\n"])
    shown: list[str] = []
    policy = terminal_policy(Terminal(lambda: next(lines), shown.append))
    options = [{"label": "red", "description": ""}, {"label": "blue", "description": ""}]
    question = {"id": "q1", "header": "h", "question": "Which?", "options": options}
    requests = [*ASKED[:4], (QUESTION, {"isBlocking": True, "questions": [question]})]
    assert await answers_of(in_memory, requests, policy=policy) == [
        {"decision": "accept"},
        {"decision": "cancel"},
        {"decision": "acceptForSession"},
        YES[3],
        {"answers": {"q1": {"answers": ["blue"]}}},
    ]
    assert "cat a" in shown[0]
    assert "2. blue" in shown[4]


async def test_a_question_takes_over_the_prompt_of_a_withdrawn_one() -> None:
    typed: queue.SimpleQueue[str] = queue.SimpleQueue()
    shown: asyncio.Queue[str] = asyncio.Queue()
    terminal = Terminal(typed.get, shown.put_nowait)

    def ask(command: str) -> Coroutine[None, None, CommandDecision]:
        params = msgspec.convert(
            {"itemId": "i", "startedAtMs": 1, "threadId": "t", "turnId": "u", "command": command},
            CommandExecutionRequestApprovalParams,
        )
        question = CommandApproval(
            thread_id="t", turn_id="u", item_id="i", command=command, cwd="/", reason=None,
            actions=(), params=params,
        )  # fmt: skip
        return terminal.command(question)

    async with asyncio.TaskGroup() as tasks:
        withdrawn = tasks.create_task(ask("first"))
        assert "| first" in await shown.get()
        withdrawn.cancel()
        await asyncio.wait([withdrawn])
        second = tasks.create_task(ask("second"))
        assert "| second" in await shown.get()
        typed.put("y\n")
    assert second.result() == "accept"


def reading(script: str) -> list[tuple[str, JsonValue]]:
    """Return an approval of a script that the server considers read-only."""
    params = {
        "command": shlex.join(["bash", "-lc", script]),
        "cwd": "/",
        "commandActions": [{**READ, "command": "cat a"}],
    }
    return [(COMMAND, params)]


@pytest.mark.parametrize(
    "script",
    ["cat a > b", "find . -delete", "cat $(rm x)", "rg --pre rm x", "sed -n -i 1p a", "cat a; rm b",
     "sort -o a b", "cat 'unclosed", "cat a | tee b", "cat a|tee b", "cat a | sort -ob",
     "cat a | sort -ro b", "cat a | sort --outp=b", "cat a | awk 'BEGIN{system(\"rm b\")}'",
     "cat a | awk -f b",
     "cat a | xargs rm", "cat a | sed 's/a/rm b/e'", "cat a | sed -n 'w b'", "sed -n 1p a -i.b",
     "cat a | uniq - b", "git grep -Orm a", "git grep --open=rm a", "git -c alias.grep=!rm grep a",
     "fd a -Xrm", "tree -ob", "cat <(rm b)", "find . -{delete,print}", "./cat a", "A=1 cat a",
     "cat a || rm b", "cat a |", "cat a |& tee b", "less -ob a", "rg -z a", "| cat a",
     "git ls-files -o", "git grep -n x -- src", "git status", "cat a; git log", "bash -lc 'cat a'",
     "cat a && sh -c 'cat b'"],
)  # fmt: skip
async def test_a_command_that_could_do_more_than_read_is_not_safe(
    in_memory: Reach, script: str
) -> None:
    """The server's classification is checked against the command itself."""
    answers = await answers_of(in_memory, reading(script), policy=approve_safe)
    assert answers == [{"decision": "decline"}]


@pytest.mark.parametrize(
    "script",
    ["cat a", "/bin/cat a", "ls -la b | head -3", "rg -n 'x|y' src | sort -rn | uniq -c | wc -l",
     "sed -n 10,20p a", "nl -ba a | sed -n 1,5p", "find . -name '*.py' -type f",
     "fd -e py", "grep -rn x .", "cat -- a", "tail -n +3 < a"],
)  # fmt: skip
async def test_commands_that_only_read_are_safe(in_memory: Reach, script: str) -> None:
    answers = await answers_of(in_memory, reading(script), policy=approve_safe)
    assert answers == [{"decision": "accept"}]
