"""Each event: when its hooks run, what they are given, and what their answers change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.hooks import Hooks, handler, matched, outcomes, runs, warnings
from tests.harness.model_server import Reply, calls, says
from tests.harness.threads import Client, Stage, outline, params_of, text_input, words
from treadle.protocol.base import JsonValue

ALL = (
    "PreModelRequest PostModelRequest PreToolUse PermissionRequest PostToolUse PreCompact "
    "PostCompact SessionStart SessionEnd UserPromptSubmit SubagentStart SubagentStop Stop Interrupt"
).split()


def echo(call_id: str = "call-1", words: str = "echo hi") -> Reply:
    """A call that prints something."""
    return calls("exec_command", {"cmd": words}, call_id)


async def test_hooks_of_a_turn_run_in_order_and_are_given_the_fields_of_the_reference(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: the input of every event, as release 0.169.0 writes it."""
    await hooks.install(**dict.fromkeys(ALL, hooks.records()))
    thread_id = await client.start(cwd=str(stage.workspace))
    stage.model.plays(echo(), says("done"))
    turn_id = await client.start_turn(thread_id, "hello")
    await client.end_of(turn_id)
    (path,) = stage.home.glob("sessions/**/*.jsonl")

    session = {"session_id": thread_id}
    place = {"transcript_path": str(path), "cwd": str(stage.workspace)}
    about = {**session, **place, "model": "mock-model"}
    mode = {"permission_mode": "bypassPermissions"}
    of_turn = {**about, "turn_id": turn_id}
    tool: JsonValue = {
        "tool_name": "Bash",
        "tool_input": {"command": "echo hi"},
        "tool_use_id": "call-1",
    }
    usage = {
        "input_tokens": 10,
        "cached_input_tokens": 0,
        "cache_write_input_tokens": 0,
        "output_tokens": 5,
        "reasoning_output_tokens": 0,
        "total_tokens": 15,
    }
    before = {**of_turn, "hook_event_name": "PreModelRequest"}
    after: JsonValue = {**of_turn, "hook_event_name": "PostModelRequest", "status": "completed"}
    after |= {"error": None, "token_usage": usage}
    assert sorted(hooks.given(), key=lambda each: ALL.index(each["hook_event_name"])) == [
        before,
        before,
        after,
        after,
        {**of_turn, **mode, **tool, "hook_event_name": "PreToolUse"},
        {**of_turn, **mode, **tool, "hook_event_name": "PostToolUse", "tool_response": "hi\n"},
        {**about, **mode, "hook_event_name": "SessionStart", "source": "startup"},
        {**of_turn, **mode, "hook_event_name": "UserPromptSubmit", "prompt": "hello"},
        {
            **of_turn,
            **mode,
            "hook_event_name": "Stop",
            "stop_hook_active": False,
            "last_assistant_message": "done",
        },
    ]
    assert hooks.events()[:3] == ["SessionStart", "UserPromptSubmit", "PreModelRequest"]
    assert hooks.events()[-3:] == ["PreModelRequest", "PostModelRequest", "Stop"]


async def test_each_run_is_published_recorded_and_returned_after_a_restart(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: the fields of a run. Ours: a client that joins later receives the runs too."""
    path = hooks.write(Stop=handler(hooks.records(), statusMessage="checking"))
    await hooks.trust()
    thread_id = await client.start()
    turn_id = await client.start_turn(thread_id)
    messages = await client.end_of(turn_id)
    (started,), (completed,) = runs(messages, "hook/started"), runs(messages)
    await stage.restart()
    late = await stage.client()
    await late.request("thread/resume", {"threadId": thread_id, "afterSeq": 0})
    replayed = runs(await late.settled())

    assert completed.pop("completedAt") >= completed.pop("startedAt") == started.pop("startedAt")
    assert completed.pop("durationMs") >= 0
    common = {
        "id": f"stop:0:{path}",
        "eventName": "stop",
        "handlerType": "command",
        "executionMode": "sync",
        "scope": "turn",
        "sourcePath": str(path),
        "source": "user",
        "displayOrder": 0,
        "statusMessage": "checking",
        "entries": [],
    }
    assert started == {**common, "status": "running", "completedAt": None, "durationMs": None}
    assert completed == {**common, "status": "completed"}
    assert params_of(messages, "hook/completed")[0]["turnId"] == turn_id
    assert [run["id"] for run in replayed] == [f"stop:0:{path}"]


# -- the start of a session


@pytest.mark.parametrize("as_json", [False, True])
async def test_text_of_session_start_reaches_the_model_before_the_input(
    stage: Stage, client: Client, hooks: Hooks, as_json: bool
) -> None:
    """Upstream: printed text, or `additionalContext`, as a developer message."""
    specific = {"hookEventName": "SessionStart", "additionalContext": "today is monday"}
    output = {"hookSpecificOutput": specific} if as_json else None
    await hooks.install(SessionStart=hooks.says(output, text="today is monday"))
    thread_id = await client.start()
    messages = await client.run(thread_id, "hello")
    again = await client.run(thread_id, "more")

    said = stage.model.requests[0].messages("developer", "user")
    assert said[-2:] == [("developer", "today is monday"), ("user", "hello")]
    assert outcomes(messages) == [("sessionStart", "completed", ["context: today is monday"])]
    assert runs(messages)[0]["scope"] == "thread"
    assert outcomes(again) == []


async def test_session_start_can_end_the_turn(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Upstream: `continue: false`."""
    await hooks.install(SessionStart=hooks.says({"continue": False, "stopReason": "not today"}))
    messages = await client.run(await client.start())

    assert outcomes(messages) == [("sessionStart", "stopped", ["stop: not today"])]
    assert outline(messages)[-1] == "turn/completed completed"
    assert stage.model.requests == []


async def test_a_session_starts_by_startup_resume_fork_and_compaction(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: `source`, which the matcher selects by."""
    await hooks.install(
        SessionStart=[
            matched("startup|resume", hooks.records()),
            matched("^(fork|compact)$", hooks.records()),
            matched("clear", "exit 1"),
        ]
    )
    thread_id = await client.start()
    await client.run(thread_id)
    answer = await client.request("thread/fork", {"threadId": thread_id})
    await client.run(answer["thread"]["id"])
    await client.request("thread/compact/start", {"threadId": thread_id})
    await client.until("turn/completed")
    await client.run(thread_id)
    await stage.restart()
    other = await stage.client()
    await other.request("thread/resume", {"threadId": thread_id})
    await other.run(thread_id)

    sources = [each["source"] for each in hooks.given("SessionStart")]
    assert sources == ["startup", "fork", "compact", "resume"]


async def test_a_session_ends_with_its_thread_and_with_the_server(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: `SessionEnd`, for sessions in which a turn ran."""
    await hooks.install(SessionEnd=hooks.records())
    used, archived, unused = [await client.start() for _ in range(3)]
    await client.run(used)
    await client.run(archived)
    await client.request("thread/archive", {"threadId": archived})
    await stage.close()

    ended = hooks.given("SessionEnd")
    assert {each["session_id"] for each in ended} == {used, archived}
    assert unused not in {each["session_id"] for each in ended}
    assert ended[0].keys() == {
        "session_id",
        "transcript_path",
        "cwd",
        "hook_event_name",
        "reason",
    }


# -- the user's input


async def test_text_for_a_prompt_follows_it(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Upstream: printed text, as a developer message after the input."""
    await hooks.install(UserPromptSubmit=hooks.says(text="remember the milk"))
    await client.run(await client.start(), "hello")

    said = stage.model.requests[0].messages("developer", "user")
    assert said[-2:] == [("user", "hello"), ("developer", "remember the milk")]


BLOCKS: list[tuple[JsonValue, str, int]] = [
    ({"decision": "block", "reason": "no secrets"}, "", 0),
    ({"continue": False, "stopReason": "no secrets"}, "", 0),
    (None, "no secrets\n", 2),
]


@pytest.mark.parametrize("block", BLOCKS)
async def test_a_blocked_prompt_reaches_neither_the_model_nor_the_thread(
    stage: Stage, client: Client, hooks: Hooks, block: tuple[JsonValue, str, int]
) -> None:
    """Upstream: the turn completes without a request. Ours: every client gets a warning."""
    await hooks.install(UserPromptSubmit=hooks.answers(block))
    thread_id = await client.start()
    messages = await client.run(thread_id, "my password is x")

    assert [line for line in outline(messages) if not line.startswith("hook/")] == [
        "thread/status/changed active",
        "turn/started",
        "thread/status/changed idle",
        "turn/completed completed",
    ]
    assert warnings(messages) == ["the input was blocked by a UserPromptSubmit hook: no secrets"]
    assert stage.model.requests == []
    hooks.write()
    await client.run(thread_id, "hello")
    assert stage.model.requests[0].conversation() == [("user", "hello")]
    assert words(await client.read(thread_id)) == [[], ["hello", "done"]]


async def test_blocked_input_stays_out_of_the_next_server(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: the input is consumed, so that no recovery adds it later."""
    await hooks.install(UserPromptSubmit=hooks.says(error="no", code=2))
    thread_id = await client.start()
    await client.run(thread_id, "secret")
    await stage.restart()
    other = await stage.client()
    hooks.write()
    await other.request("thread/resume", {"threadId": thread_id})
    await other.run(thread_id, "hello")

    assert stage.model.requests[0].conversation() == [("user", "hello")]


async def test_blocked_input_of_an_active_turn_does_not_end_it(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: `turn/steer` is checked too."""
    check = f"cat > {hooks.log}.last; cat {hooks.log}.last >> {hooks.log}; echo >> {hooks.log}; "
    check += f'if grep -q \'"prompt":"bad"\' {hooks.log}.last; then echo no >&2; exit 2; fi'
    await hooks.install(UserPromptSubmit=check)
    thread_id = await client.start()
    stage.model.plays(calls("exec_command", {"cmd": "read x", "tty": True}), says("done"))
    turn_id = await client.start_turn(thread_id, "good")
    await client.until("item/started", lambda p: p["item"]["type"] == "commandExecution")
    steer = {"threadId": thread_id, "expectedTurnId": turn_id, "input": [text_input("bad")]}
    await client.request("turn/steer", steer)
    messages = await client.end_of(turn_id)

    assert outline(messages)[-1] == "turn/completed completed"
    assert stage.model.requests[-1].conversation() == [("user", "good")]
    assert [each["prompt"] for each in hooks.given("UserPromptSubmit")] == ["good", "bad"]


# -- the end of a turn


@pytest.mark.parametrize("by_exit_code", [True, False])
async def test_a_stop_hook_gives_the_model_more_to_do(
    stage: Stage, client: Client, hooks: Hooks, by_exit_code: bool
) -> None:
    """Upstream: the prompt, its item, and `stop_hook_active` of the next run."""
    output = None if by_exit_code else {"decision": "block", "reason": "run the <tests>"}
    answer = hooks.says(output, error="run the <tests>", code=2 if by_exit_code else 0)
    once = f"if [ -e {hooks.log} ]; then {hooks.records()}; exit 0; fi; {answer}"
    path = hooks.write(Stop=once)
    await hooks.trust()
    thread_id = await client.start()
    stage.model.plays(says("first"), says("second"))
    messages = await client.run(thread_id, "hello")

    assert stage.model.requests[-1].conversation() == [
        ("user", "hello"),
        ("assistant", "first"),
        (
            "user",
            f'<hook_prompt hook_run_id="stop:0:{path}">run the &lt;tests&gt;</hook_prompt>',
        ),
    ]
    items = [p["item"] for p in params_of(messages, "item/completed")]
    (prompt,) = [item for item in items if item["type"] == "hookPrompt"]
    assert prompt["fragments"] == [{"text": "run the <tests>", "hookRunId": f"stop:0:{path}"}]
    assert [each["stop_hook_active"] for each in hooks.given("Stop")] == [False, True]
    assert [run["status"] for run in runs(messages)] == ["blocked", "completed"]
    assert words(await client.read(thread_id)) == [["hello", "first", "hookPrompt", "second"]]


async def test_a_stop_hook_that_always_blocks_ends(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Ours: a turn ends after 50 continuations."""
    await hooks.install(Stop="echo more >&2; exit 2")
    messages = await client.run(await client.start())

    assert len(stage.model.requests) == 51
    assert warnings(messages)[-1] == "hooks prevented the end of the turn 50 times, so it ends now"
    assert outline(messages)[-1] == "turn/completed completed"


async def test_continue_false_of_a_stop_hook_outweighs_a_block(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream."""
    block = handler(hooks.says(error="more", code=2))
    await hooks.install(
        Stop={"hooks": [block, handler(hooks.says({"continue": False, "stopReason": "enough"}))]}
    )
    messages = await client.run(await client.start())

    assert len(stage.model.requests) == 1
    assert sorted(run["status"] for run in runs(messages)) == ["blocked", "stopped"]


async def test_an_interrupted_turn_runs_the_hooks_of_that(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: `Interrupt`; it does not delay the end of the turn here."""
    await hooks.install(Interrupt=hooks.records(), Stop="exit 1")
    thread_id = await client.start()
    stage.model.plays(calls("exec_command", {"cmd": "sleep 60"}))
    turn_id = await client.start_turn(thread_id)
    await client.until("item/started", lambda p: p["item"]["type"] == "commandExecution")
    await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    await client.until("hook/completed")

    (given,) = hooks.given("Interrupt")
    assert (given["turn_id"], given["permission_mode"]) == (turn_id, "bypassPermissions")
    assert hooks.events() == ["Interrupt"]


# -- compaction


async def test_hooks_surround_a_compaction(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Upstream: the trigger is given and matched."""
    await hooks.install(
        PreCompact=[matched("manual", hooks.records()), matched("auto", "exit 1")],
        PostCompact=hooks.records(),
    )
    thread_id = await client.start()
    await client.run(thread_id)
    await client.request("thread/compact/start", {"threadId": thread_id})
    messages = await client.until("turn/completed")

    assert [(each["hook_event_name"], each["trigger"]) for each in hooks.given()] == [
        ("PreCompact", "manual"),
        ("PostCompact", "manual"),
    ]
    lines = [line for line in outline(messages) if "Compaction" in line or "hook/" in line]
    assert lines == [
        "hook/started",
        "hook/completed",
        "item/started contextCompaction",
        "item/completed contextCompaction",
        "hook/started",
        "hook/completed",
    ]


async def test_a_hook_can_prevent_a_compaction(stage: Stage, client: Client, hooks: Hooks) -> None:
    """Upstream: the turn ends as interrupted, and nothing is compacted."""
    await hooks.install(PreCompact=hooks.says({"continue": False, "stopReason": "keep it"}))
    thread_id = await client.start()
    await client.run(thread_id, "hello")
    await client.request("thread/compact/start", {"threadId": thread_id})
    messages = await client.until("turn/completed")

    assert outline(messages)[-1] == "turn/completed interrupted"
    assert outcomes(messages) == [("preCompact", "stopped", ["stop: keep it"])]
    assert len(stage.model.requests) == 1


async def test_an_automatic_compaction_has_its_hooks_too(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: the trigger `auto`."""
    stage.configure("model_auto_compact_token_limit = 1")
    await hooks.install(PreCompact=hooks.records(), PostCompact=hooks.records())
    thread_id = await client.start()
    await client.run(thread_id)
    await client.run(thread_id)

    assert [(each["hook_event_name"], each["trigger"]) for each in hooks.given()] == [
        ("PreCompact", "auto"),
        ("PostCompact", "auto"),
    ]


# -- the context of hooks


async def test_a_long_context_goes_to_a_private_file(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: 2500 tokens by default, or the limit of the hook."""
    text = "word " * 4000
    await hooks.install(
        SessionStart=handler(hooks.says(text=text)),
        UserPromptSubmit=handler(hooks.says(text=text), additionalContextLimit=100),
    )
    await client.run(await client.start(), "hello")

    texts = [text for role, text in stage.model.requests[0].messages("developer")][-2:]
    assert [len(each) < limit for each, limit in zip(texts, (10_100, 500), strict=True)]
    for shown in texts:
        assert saved(shown) == (text.strip(), 0o600, 0o700)


def saved(shown: str) -> tuple[str, int, int]:
    """The text of a file that a shortened text names, and the modes of file and folder."""
    path = Path(shown.rpartition("saved to: ")[2])
    modes = [each.stat().st_mode & 0o777 for each in (path, path.parent)]
    return path.read_text("utf-8"), modes[0], modes[1]


async def test_a_hook_in_the_background_speaks_with_the_next_input(
    stage: Stage, client: Client, hooks: Hooks
) -> None:
    """Upstream: `async`; it cannot block, and its context comes with the user's next message."""
    specific = {"hookEventName": "PreToolUse", "additionalContext": "it was slow"}
    late = hooks.says({"hookSpecificOutput": specific, "decision": "block", "reason": "no"})
    await hooks.install(PreToolUse=handler(late, **{"async": True}))
    thread_id = await client.start()
    stage.model.plays(echo(), says("done"))
    turn_id = await client.start_turn(thread_id)
    messages = await client.until("hook/completed")
    if not params_of(messages, "turn/completed"):
        await client.end_of(turn_id)
    await client.run(thread_id, "next")

    assert "hi" in str(stage.model.requests[1].outputs()["call-1"])
    assert runs(messages)[0]["executionMode"] == "async"
    developer = [text for role, text in stage.model.requests[-1].messages("developer")]
    assert developer[-1] == (
        '<async_hook_outputs>\n<async_hook_output event="PreToolUse">\nit was slow\n'
        "</async_hook_output>\n</async_hook_outputs>"
    )
