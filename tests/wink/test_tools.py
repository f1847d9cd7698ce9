"""Tool calls, the prompt's and the agent's own, as reported to the session."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

pytest.importorskip("weakincentives", reason="weakincentives needs Python 3.12.3 or newer")

from weakincentives.prompt import (
    Feedback,
    FeedbackProviderConfig,
    FeedbackTrigger,
    FileOutputChecker,
    Prompt,
    PromptTemplate,
    StaticFeedbackProvider,
    Tool,
    ToolContext,
    ToolResult,
    VisibilityExpansionRequired,
)
from weakincentives.runtime import Heartbeat, ToolInvoked

from tests.harness.model_server import calls, patches, says
from tests.wink.ground import Ground, Log, Text, prompt, tool
from treadle import Image
from treadle.protocol.base import JsonValue
from treadle.wink import CodexWorkspaceSection, HostMount

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_failing_tools_and_invalid_arguments_are_reported_as_errors(
    ground: Ground,
) -> None:
    def broken(_given: Text) -> ToolResult[Text]:
        raise RuntimeError("out of paper")

    ground.model.plays(
        calls("broken", {"text": "a"}, "call-1"),
        calls("broken", {"text": 3}, "call-2"),
        says("Sorry."),
    )
    log = Log()

    await ground.adapter().evaluate_async(
        prompt("Go.", tool("broken", broken)), session=log.session
    )

    raised, invalid = log.of(ToolInvoked)
    assert (raised.call_id, raised.result.success) == ("call-1", False)
    assert raised.rendered_output == "Error: out of paper"
    assert (invalid.call_id, invalid.params) == ("call-2", {"text": 3})
    assert invalid.rendered_output.startswith("Validation error: text: ")
    outputs = ground.model.requests[-1].outputs()
    assert "out of paper" in str(outputs["call-1"])


async def test_a_failing_tool_leaves_no_trace_in_the_session(own_ground: Ground) -> None:
    log = Log()

    def handle(params: Text, *, context: ToolContext) -> ToolResult[Text]:
        context.session[Text].seed(params)
        is_good = params.text == "good"
        return ToolResult(params.text, params if is_good else None, success=is_good)

    keep = Tool[Text, Text](name="keep", description="Keeps a text.", handler=handle)
    own_ground.model.plays(
        calls("keep", {"text": "good"}, "call-1"),
        calls("keep", {"text": "other"}, "call-2"),
        says("Done."),
    )

    await own_ground.adapter().evaluate_async(prompt("Go.", keep), session=log.session)

    assert log.session[Text].latest() == Text("good")
    assert [each.result.success for each in log.of(ToolInvoked)] == [True, False]


async def test_commands_and_edits_of_the_agent_are_reported_completely(ground: Ground) -> None:
    patch = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
    ground.model.plays(
        calls("exec_command", {"cmd": "seq 1 1000"}, "call-1"),
        calls("exec_command", {"cmd": "exit 3"}, "call-2"),
        _patch(ground, patch),
        says("Done."),
    )
    log = Log()

    await ground.adapter(sandbox_mode="danger-full-access").evaluate_async(
        prompt("Go."), session=log.session
    )

    counted, failed, edited = log.of(ToolInvoked)
    assert (counted.name, counted.result.success) == ("codex:command", True)
    assert counted.rendered_output.split() == [str(number) for number in range(1, 1001)]
    assert (failed.name, failed.params["exit_code"]) == ("codex:command", 3)
    assert not failed.result.success
    path = str(ground.cwd / "new.txt")
    assert (edited.name, edited.params["paths"]) == ("codex:file_change", [path])
    assert all(each.call_id for each in (counted, failed, edited))


def _patch(ground: Ground, patch: str) -> JsonValue:
    if ground.kind == "treadle":
        return patches(patch, "call-3")
    # The reference offers its patch tool to models that it knows; to others, a command.
    script = f"apply_patch <<'EOF'\n{patch}EOF"
    return calls("exec_command", {"cmd": script}, "call-3")


async def test_an_image_in_a_result_is_sent_to_the_model(own_ground: Ground) -> None:
    def handle(params: Text, *, context: ToolContext) -> ToolResult[Image]:
        del params, context
        return ToolResult.ok(Image(PIXEL), message="a picture")

    draw = Tool[Text, Image](name="draw", description="Draws.", handler=handle)
    own_ground.model.plays(calls("draw", {"text": "cat"}, "call-1"), says("A cat."))

    await own_ground.adapter().evaluate_async(prompt("Go.", draw), session=Log().session)

    output = own_ground.model.requests[-1].outputs()["call-1"]
    assert [part["type"] for part in output] == ["input_text", "input_image"]


async def test_a_tool_that_requests_full_sections_has_the_prompt_rendered_again(
    ground: Ground,
) -> None:
    def open_up(_given: Text) -> ToolResult[Text]:
        raise VisibilityExpansionRequired(
            "more is needed", requested_overrides={}, reason="to know", section_keys=("task",)
        )

    ground.model.plays(calls("open_up", {"text": "a"}), *[says("Never.")] * 2)

    with pytest.raises(VisibilityExpansionRequired) as wish:
        await ground.adapter().evaluate_async(
            prompt("Go.", tool("open_up", open_up)), session=Log().session
        )

    assert wish.value.section_keys == ("task",)


async def test_a_heartbeat_accompanies_every_event_and_every_tool(own_ground: Ground) -> None:
    own_ground.model.plays(calls("upper", {"text": "a"}), says("Done."))
    beats: list[int] = []
    heart = Heartbeat()
    heart.add_callback(lambda: beats.append(1))

    await own_ground.adapter().evaluate_async(
        prompt("Go.", tool()), session=Log().session, heartbeat=heart
    )

    assert len(beats) > 10


async def test_feedback_reaches_the_model_with_the_result(own_ground: Ground) -> None:
    provider = StaticFeedbackProvider(feedback="Be thorough.")
    config = FeedbackProviderConfig(provider=provider, trigger=FeedbackTrigger(every_n_calls=1))
    own_ground.model.plays(calls("upper", {"text": "a"}, "call-1"), says("Done."))
    log = Log()

    await own_ground.adapter().evaluate_async(
        prompt("Go.", tool(), about={"feedback_providers": (config,)}), session=log.session
    )

    assert len(log.session[Feedback].all()) == 1
    assert "Be thorough." in str(own_ground.model.requests[-1].outputs()["call-1"])


async def test_turns_continue_until_the_task_is_done(own_ground: Ground) -> None:
    checker = FileOutputChecker(files=("out.txt",))
    own_ground.model.plays(
        says("Done."), calls("exec_command", {"cmd": "touch out.txt"}), says("Now it is.")
    )

    response = await own_ground.adapter(sandbox_mode="danger-full-access").evaluate_async(
        prompt("Write out.txt.", about={"task_completion_checker": checker}),
        session=Log().session,
    )

    assert response.text == "Now it is."
    assert "out.txt" in own_ground.model.requests[1].conversation()[-1][1]


async def test_the_agent_works_in_the_workspace(own_ground: Ground, tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "a.txt").write_text("from the host", "utf-8")
    own_ground.model.plays(calls("exec_command", {"cmd": "cat data/a.txt"}), says("Read."))
    log = Log()

    with CodexWorkspaceSection(
        session=log.session,
        mounts=[HostMount(host_path=str(host), mount_path="data")],
        allowed_host_roots=[tmp_path],
    ) as section:
        template: PromptTemplate[None] = PromptTemplate(ns="t", key="k", sections=(section,))
        await own_ground.adapter(cwd=None, sandbox_mode="danger-full-access").evaluate_async(
            Prompt(template), session=log.session
        )

    assert log.invocations() == [("codex:command", True, "from the host")]
    assert not section.temp_dir.exists()
