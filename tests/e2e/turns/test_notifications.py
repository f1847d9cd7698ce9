"""What happens beside a turn: opt-outs, raw events, skills, several calls, several threads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.harness.model_server import Reply, completed, created, done, says
from tests.harness.threads import (
    ANSWER,
    EPILOGUE,
    PROLOGUE,
    Stage,
    outline,
    params_of,
    text_input,
    words,
)


async def test_a_client_does_not_receive_notifications_it_opted_out_of(stage: Stage) -> None:
    """Upstream: exact names; unknown ones are ignored."""
    opted = ["thread/started", "item/agentMessage/delta", "account/rateLimits/updated", "nope/x"]
    client = await stage.client(optOutNotificationMethods=opted)
    stage.model.plays(says("hello", "m1", ["hel", "lo"]))
    answer = await client.request("thread/start", {})
    messages = await client.run(answer["thread"]["id"])

    assert outline(messages) == [*PROLOGUE, *ANSWER, *EPILOGUE]
    assert not {message["method"] for message in messages} & set(opted)


async def test_raw_events_reach_threads_that_requested_them(stage: Stage) -> None:
    """Upstream 0.163: what the model is sent and what it sends, exactly."""
    client = await stage.client()
    thread_id = await client.start(experimentalRawEvents=True)
    messages = await client.run(thread_id, "raw")

    raw = "rawResponseItem/completed"
    assert outline(messages) == [
        *PROLOGUE[:2],
        raw,
        raw,
        raw,
        *PROLOGUE[2:],
        *ANSWER[:2],
        raw,
        "rawResponse/completed",
        "thread/tokenUsage/updated",
        *EPILOGUE,
    ]
    items = [params["item"] for params in params_of(messages, raw)]
    assert [item["role"] for item in items] == ["developer", "user", "user", "assistant"]
    assert params_of(messages, "rawResponse/completed")[0]["usage"]["totalTokens"] == 15


async def test_a_skill_is_shown_to_the_model_before_the_message_that_names_it(
    stage: Stage,
) -> None:
    skill = write_skill(stage.home / "skills" / "well", "Do it well.")
    client = await stage.client()
    input_ = [{"type": "skill", "name": "well", "path": str(skill)}, text_input("use $well")]
    await client.run(await client.start(), input=input_)

    conversation = stage.model.requests[0].conversation()
    assert [role for role, _ in conversation] == ["user", "user"]
    assert "Do it well." in conversation[0][1]
    assert conversation[1] == ("user", "use $well")


async def test_only_enabled_skills_are_injected(stage: Stage) -> None:
    """Upstream: an unknown or disabled skill is left out, and the turn runs without it."""
    disabled = write_skill(stage.home / "skills" / "off", "DISABLED")
    enabled = write_skill(stage.workspace / ".agents" / "skills" / "on", "ENABLED")
    link = stage.workspace / "link"
    link.symlink_to(enabled.parent)
    plain = stage.workspace / "notes.txt"
    plain.write_text("PLAIN", "utf-8")
    client = await stage.client()
    await client.request("skills/config/write", {"path": str(disabled), "enabled": False})
    thread_id = await client.start()
    paths = [disabled, plain, "/etc/hostname", "relative", "a\0b", link / "SKILL.md"]
    input_ = [{"type": "skill", "name": "x", "path": str(path)} for path in paths]
    # The folder of the turn has one skill more than that of the thread.
    await client.run(thread_id, input=[*input_, text_input("go")], cwd=str(stage.workspace))
    turn_id = await client.start_turn(thread_id, input=[*input_[:2], text_input("again")])
    await client.end_of(turn_id)

    first, second = (asked.conversation() for asked in stage.model.requests)
    (injected,) = [text for _, text in first if "<skill>" in text]
    assert injected.startswith(f"<skill>\n<name>x</name>\n<path>{link}/SKILL.md</path>\n")
    assert injected.endswith("\nENABLED\n</skill>")
    assert first[-1] == ("user", "go")
    assert [text for _, text in second[len(first) + 1 :]] == ["again"]


async def test_skills_in_roots_that_clients_add_are_injected(stage: Stage) -> None:
    """Upstream: roots for all folders since 0.163, for one folder in 0.118."""
    everywhere = write_skill(stage.workspace.parent / "everywhere" / "one", "FIRST")
    here = write_skill(stage.workspace.parent / "here" / "two", "SECOND")
    client = await stage.client()
    await client.request("skills/extraRoots/set", {"extraRoots": [str(everywhere.parent.parent)]})
    roots = [{"cwd": str(stage.workspace), "extraUserRoots": [str(here.parent.parent)]}]
    params = {"cwds": [str(stage.workspace)], "perCwdExtraUserRoots": roots}
    await client.request("skills/list", params)
    input_ = [{"type": "skill", "name": "x", "path": str(path)} for path in (everywhere, here)]
    thread_id = await client.start(cwd=str(stage.workspace))
    await client.run(thread_id, input=[*input_, text_input("go")])

    (asked,) = stage.model.requests
    injected = [text for _, text in asked.conversation() if "<skill>" in text]
    assert [text.splitlines()[-2] for text in injected] == ["FIRST", "SECOND"]


def write_skill(folder: Path, body: str) -> Path:
    folder.mkdir(parents=True)
    path = folder / "SKILL.md"
    path.write_text(f"---\nname: {folder.name}\ndescription: x\n---\n{body}", "utf-8")
    return path


async def test_context_that_a_client_adds_reaches_the_model_when_it_changes(stage: Stage) -> None:
    """Upstream 0.163: its own words as developer, those of others in the user's name."""
    client = await stage.client()
    thread_id = await client.start()
    first = {
        "one": {"kind": "application", "value": "A"},
        "two": {"kind": "untrusted", "value": "B"},
    }
    await client.run(thread_id, "x", additionalContext=first)
    await client.run(thread_id, "y", additionalContext=first)
    changed = {"one": {"kind": "application", "value": "C"}}
    await client.run(thread_id, "z", additionalContext=changed)

    assert stage.model.requests[2].messages()[2:] == [
        ("developer", "<one>A</one>"),
        ("user", "<external_two>B</external_two>"),
        ("user", "x"),
        ("assistant", "done"),
        ("user", "y"),
        ("assistant", "done"),
        ("developer", "<one>C</one>"),
        ("user", "z"),
    ]
    assert words(await client.read(thread_id)) == [["x", "done"], ["y", "done"], ["z", "done"]]


async def test_two_calls_in_one_answer_are_both_carried_out(stage: Stage) -> None:
    """Upstream: both outputs go back in the order of the calls."""
    plan = '{"plan": []}'
    both = [
        done({"type": "function_call", "call_id": id_, "name": "update_plan", "arguments": plan})
        for id_ in ("c1", "c2")
    ]
    stage.model.plays(Reply([created(), *both, completed()]), says("ok", "m2"))
    client = await stage.client()
    await client.run(await client.start())

    kinds = [item["type"] for item in stage.model.requests[1].body["input"]][3:]
    assert kinds == [
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert list(stage.model.requests[1].outputs()) == ["c1", "c2"]


async def test_an_input_that_cannot_be_read_is_refused_and_leaves_the_thread_idle(
    stage: Stage,
) -> None:
    client = await stage.client()
    thread_id = await client.start()
    input_ = [{"type": "localImage", "path": "/no/such.png"}]
    refused = await client.refusal("turn/start", {"threadId": thread_id, "input": input_})

    assert (refused.code, refused.kind) == (-32600, "invalidParams")
    assert refused.data["path"] == "input[0].path"
    assert outline(await client.run(thread_id))[-1] == "turn/completed completed"


async def test_turns_of_different_threads_run_at_the_same_time(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.model.plays(says("slow", "m1", ["s"], gate), says("fast", "m2"))
    client = await stage.client()
    slow, fast = await client.start(), await client.start()
    first = await client.start_turn(slow)
    await stage.model.wait_for_request(1)

    messages = await client.run(fast)
    gate.set()

    assert messages[-1]["params"]["turn"]["items"][0]["text"] == "fast"
    assert (await client.end_of(first))[-1]["params"]["turn"]["status"] == "completed"
