"""The client against real servers, ours and releases of the reference, with a fake provider."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import pytest

from tests.client.relay import Relay, relay
from tests.harness.commands import LOGIN_SHELL
from tests.harness.model_server import (
    ModelServer,
    Reply,
    calls,
    completed,
    created,
    message,
    model_server,
    refuses,
    says,
)
from tests.harness.processes import ServerProcess, environment
from tests.harness.releases import LACKS, NEWEST, OFFLINE, OLDEST, SERVERS, having, program
from tests.harness.threads import configure
from treadle import (
    ApprovalPolicy,
    AsyncClient,
    CommandApproval,
    FileChangeApproval,
    LoginFailed,
    RequestRefused,
    TurnFailed,
    TurnInterrupted,
    TurnResult,
    approve_all,
    deny_all,
)
from treadle.client._runtime.reconnect import Backoff
from treadle.client.commands import CommandOutput
from treadle.client.events import AgentMessageDelta, ThreadStarted
from treadle.client.options import ClientOptions
from treadle.protocol.account import ApiKeyAccount
from treadle.protocol.base import NoParams
from treadle.protocol.item import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    DynamicToolCallThreadItem,
    FileChangeThreadItem,
)
from treadle.protocol.method import Request

SECONDS = 50


@dataclass
class Scene:
    """A server process, its workspace and its model."""

    release: str
    home: Path
    model: ModelServer
    workspace: Path

    @property
    def program(self) -> str:
        """Return the server's executable."""
        return program(self.release)

    @asynccontextmanager
    async def client(self, **options: Unpack[ClientOptions]) -> AsyncIterator[AsyncClient]:
        """Return a client of a new process on the same home."""
        env = {"CODEX_HOME": str(self.home), "TREADLE_HOME": str(self.home)}
        options.setdefault("env", {**env, "HOME": str(self.home)})
        options.setdefault("cwd", self.workspace)
        program = Path(self.program)
        async with asyncio.timeout(SECONDS), AsyncClient(program, **options) as client:
            yield client


@pytest.fixture(params=SERVERS)
async def scene(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[Scene]:
    workspace = home.parent / "workspace"
    workspace.mkdir()
    async with model_server() as model:
        configure(home, model, OFFLINE.get(request.param, ""))
        yield Scene(request.param, home, model, workspace)


async def test_connect_and_list_models(scene: Scene) -> None:
    """Seed 001, integration test 1."""
    async with scene.client(client_name="probe") as client:
        home = None if scene.release == OLDEST else str(scene.home)  # which does not report it
        assert client.server.codex_home == home
        assert (await client.list_models()).data


async def test_start_a_thread_and_run_a_simple_turn(scene: Scene) -> None:
    """Seed 001, integration test 2."""
    scene.model.plays(says("hello world", "m1", ["hello", " world"]))
    async with scene.client() as client:
        thread = await client.start_thread()
        result = await thread.run("echo hello world")
        assert (result.agent_message, result.turn.status) == ("hello world", "completed")
        assert [type(item).__name__ for item in result.items] == [
            "UserMessageThreadItem",
            "AgentMessageThreadItem",
        ]
        assert result.usage is not None
        assert result.usage.total.total_tokens == 15


async def test_a_thread_can_be_resumed_by_another_process(scene: Scene) -> None:
    scene.model.plays(says("one"), says("two"), says("three"))
    async with scene.client() as client:
        thread = await client.start_thread()
        await thread.run("first")
        await thread.set_name("kept")
    async with scene.client() as client:
        resumed = await client.resume_thread(thread.id)
        assert (await resumed.run("second")).agent_message == "two"
        fork = await resumed.fork()
        await fork.run("third")
        texts = [
            item.text
            for turn in (await fork.read()).turns
            for item in turn.items
            if isinstance(item, AgentMessageThreadItem)
        ]
        assert texts == ["one", "two", "three"]
        names = {thread.id: thread.name async for thread in client.iter_threads()}
        # The oldest release stores a name but does not list it.
        assert names[thread.id] == (None if scene.release == OLDEST else "kept")
        assert set(names) == {thread.id, fork.id}
        await resumed.archive()
        assert thread.id not in {each.id async for each in client.iter_threads()}


async def test_a_thread_known_only_by_its_id_is_resumed_when_needed(scene: Scene) -> None:
    async with scene.client() as client:
        thread = await client.start_thread()
        await thread.run("first")
    async with scene.client() as client:
        assert (await client.run_turn(thread.id, "second")).agent_message == "done"


async def test_text_streams_while_the_model_responds_and_a_turn_can_be_interrupted(
    scene: Scene,
) -> None:
    scene.model.plays(says("never", "m1", ["on", " and"], asyncio.Event()))
    async with scene.client() as client:
        thread = await client.start_thread()
        text = ""
        async with thread.stream("talk") as turn:
            async for event in turn:
                if isinstance(event, AgentMessageDelta):
                    text += event.delta
                if text == "on and":
                    break
        with pytest.raises(TurnInterrupted):
            await turn.result()
        assert (await thread.run("and now?")).agent_message == "done"


async def test_a_cancelled_caller_interrupts_the_turn_even_right_after_its_start(
    scene: Scene,
) -> None:
    """Upstream: the reference refuses to interrupt a turn that has only just started."""
    scene.model.plays(says("never", "m1", [], asyncio.Event()))
    async with scene.client() as client:
        ended = asyncio.Event()
        client.on("turn:completed", lambda _turn: ended.set())
        thread = await client.start_thread()
        turn = await thread.start_turn("work")
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(turn.result())
            await asyncio.sleep(0)
            waiting.cancel()
        await ended.wait()
        scene.model.replies.clear()  # the model may not have been called at all
        assert (await thread.run("next")).agent_message == "done"


@having("turn/steer")
async def test_a_turn_accepts_more_input_while_it_runs(scene: Scene) -> None:
    gate = asyncio.Event()
    scene.model.plays(says("half", "m1", ["half"], gate), says("turned", "m2"))
    async with scene.client() as client:
        thread = await client.start_thread()
        turn = await thread.start_turn("go straight")
        await scene.model.wait_for_request(1)
        while not isinstance(await anext(turn), AgentMessageDelta):
            pass
        assert await turn.steer("turn left") == turn.id
        gate.set()
        result = await turn.result()
    assert result.agent_message == "turned"
    assert scene.model.requests[-1].conversation()[-1] == ("user", "turn left")


async def test_a_second_turn_that_joins_the_first_ends_with_it(scene: Scene) -> None:
    """Upstream: input for a busy thread is added to the active turn.

    Up to 0.118 the answer names another turn, which never starts.
    """
    # A release that answers before the input has arrived may end the first turn meanwhile.
    more_goes = 0 if scene.release == "treadle" else 3
    first, second = await _two_turns_at_once(scene)
    while first.agent_message != "both" and more_goes:
        more_goes -= 1
        first, second = await _two_turns_at_once(scene)
    assert (first.agent_message, second.agent_message) == ("both", "both")
    assert first.turn == second.turn


async def _two_turns_at_once(scene: Scene) -> list[TurnResult[None]]:
    gate = asyncio.Event()
    # A previous attempt may have left a reply.
    scene.model.replies.clear()
    scene.model.plays(says("half", "m1", ["half"], gate), says("both", "m2"))
    async with scene.client() as client:
        thread = await client.start_thread()
        first = await thread.start_turn("one")
        async for event in first:
            if isinstance(event, AgentMessageDelta):
                break
        second = await thread.start_turn("two")
        gate.set()
        return [await first.result(), await second.result()]


async def test_turns_of_several_threads_are_not_confused(scene: Scene) -> None:
    """Upstream 0.98: the turns of every thread have the ids 0, 1, 2."""
    gate = asyncio.Event()
    scene.model.plays(says("one", "m1", ["o"], gate), says("two", "m2"))
    async with scene.client() as client:
        slow, quick = await client.start_thread(), await client.start_thread()
        first = await slow.start_turn("1")
        while not isinstance(await anext(first), AgentMessageDelta):
            pass
        assert (await quick.run("2")).agent_message == "two"
        gate.set()
        assert (await first.result()).agent_message == "one"


async def test_a_failed_turn_is_raised_and_the_thread_continues(scene: Scene) -> None:
    scene.model.plays(refuses(400, {"error": {"message": "no such model"}}))
    async with scene.client() as client:
        thread = await client.start_thread()
        with pytest.raises(TurnFailed, match="no such model"):
            await thread.run("hi")
        assert (await thread.run("hi")).agent_message == "done"


async def test_a_refused_request_is_raised_with_the_reason(scene: Scene) -> None:
    async with scene.client() as client:
        with pytest.raises(RequestRefused) as caught:
            await client.read_thread("00000000-0000-7000-8000-000000000000")
    assert caught.value.code == -32600


async def test_a_method_that_a_release_lacks_is_refused_as_such(scene: Scene) -> None:
    async with scene.client() as client:
        for method in sorted({"no/such/method"} | LACKS.get(scene.release, frozenset())):
            if "/" not in method:
                continue
            with pytest.raises(RequestRefused) as caught:
                await client.request(Request(method, NoParams, NoParams), NoParams())
            assert caught.value.kind == "methodNotFound"
            assert str(caught.value) == f"{method}: the server has no such method"


async def test_the_model_calls_a_python_function(scene: Scene) -> None:
    scene.model.plays(calls("add", {"a": 2, "b": 3}), says("five"))
    async with scene.client() as client:

        @client.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        thread = await client.start_thread()
        result = await thread.run("2 + 3?")
    if scene.release != OLDEST:  # which has no item for it
        call = result.items[1]
        assert isinstance(call, DynamicToolCallThreadItem)
        assert (call.tool, call.success, call.status) == ("add", True, "completed")
    output = [{"type": "input_text", "text": "5"}] if scene.release == OLDEST else "5"
    assert scene.model.requests[-1].outputs() == {"call-1": output}
    (tool,) = [each for each in scene.model.requests[0].body["tools"] if each.get("name") == "add"]
    assert tool["description"] == "Add two numbers."
    assert sorted(tool["parameters"]["required"]) == ["a", "b"]


def escalated(script: str) -> dict[str, str]:
    return {"cmd": script, "sandbox_permissions": "require_escalated", "justification": "please"}


@pytest.mark.parametrize(
    ("policy", "status"), [(approve_all, "completed"), (deny_all, "declined")], ids=["yes", "no"]
)
async def test_a_policy_decides_about_a_command(
    scene: Scene, policy: ApprovalPolicy, status: str
) -> None:
    made = scene.workspace / "made"
    scene.model.plays(calls("exec_command", escalated(f"touch {made}")), says("ok"))
    async with scene.client(approvals=policy) as client:
        thread = await client.start_thread()
        result = await thread.run("make it")
    commands = [item for item in result.items if isinstance(item, CommandExecutionThreadItem)]
    assert [item.status for item in commands] == [status]
    assert made.exists() is (status == "completed")


async def test_a_handler_decides_about_a_command(scene: Scene) -> None:
    approvals: list[CommandApproval] = []
    # Not a harmless command: releases up to 0.118 run those without approval.
    scene.model.plays(calls("exec_command", escalated("touch made")), says("ok"))
    async with scene.client() as client:

        @client.on_command_approval
        async def decide(ask: CommandApproval) -> bool:
            approvals.append(ask)
            return True

        thread = await client.start_thread()
        await thread.run("run it")
    assert [(ask.thread_id, ask.command, ask.cwd, ask.reason) for ask in approvals] == [
        (thread.id, f"{LOGIN_SHELL} -lc 'touch made'", str(scene.workspace), "please")
    ]


PATCH = "*** Begin Patch\n*** Add File: {path}\n+hello\n*** End Patch\n"


async def test_a_handler_sees_the_file_changes_it_decides_about(scene: Scene) -> None:
    outside = scene.home.parent / "outside.txt"
    script = f"apply_patch <<'EOF'\n{PATCH.format(path=outside)}EOF\n"
    scene.model.plays(calls("exec_command", {"cmd": script}), says("ok"))
    approvals: list[FileChangeApproval] = []
    async with scene.client() as client:

        @client.on_file_change
        def decide(ask: FileChangeApproval) -> bool:
            approvals.append(ask)
            return False

        thread = await client.start_thread(sandbox="read-only")
        result = await thread.run("write it")
    assert [[change.path for change in ask.changes] for ask in approvals] == [[str(outside)]]
    edits = [item for item in result.items if isinstance(item, FileChangeThreadItem)]
    assert [item.status for item in edits] == ["declined"]
    assert not outside.exists()


async def test_a_command_runs_outside_threads(scene: Scene) -> None:
    async with scene.client() as client:
        free = {"type": "dangerFullAccess"}
        done = await client.exec_command(
            ["sh", "-c", "echo a; echo b >&2; exit 3"], sandbox_policy=free
        )
        assert (done.exit_code, done.stdout, done.stderr) == (3, "a\n", "b\n")


@having("command/exec/write")
async def test_commands_outside_threads_are_streamed_and_run_on_a_terminal(scene: Scene) -> None:
    free = {"type": "dangerFullAccess"}
    async with scene.client() as client:
        cat = await client.spawn_command(["cat"], sandbox_policy=free)
        await cat.write("hello\n", close=True)
        assert [piece async for piece in cat] == [CommandOutput("stdout", b"hello\n")]
        assert (await cat.wait()).exit_code == 0

        script = ["sh", "-c", "read x; stty size; echo got $x"]
        terminal = await client.spawn_command(script, size=(30, 90), sandbox_policy=free)
        await terminal.resize(40, 100)
        await terminal.write("yes\n")
        shown = b"".join([piece.data async for piece in terminal])
        assert b"40 100\r\n" in shown
        assert b"got yes\r\n" in shown

        sleeper = await client.spawn_command(["sleep", "100"], sandbox_policy=free)
        await sleeper.terminate()
        assert (await sleeper.wait()).exit_code != 0


@having("fs/writeFile")
async def test_files_are_read_and_written(scene: Scene) -> None:
    path = scene.workspace / "f"
    async with scene.client() as client:
        await client.write_file(path, b"\xff\0")
        assert await client.read_file(str(path)) == b"\xff\0"
        await client.write_file("f", "grün")
        assert await client.read_text("f") == "grün"
        assert path.read_bytes() == "grün".encode()
        entries = (await client.read_directory(scene.workspace)).entries
        assert [entry.file_name for entry in entries] == ["f"]
        await client.remove_file(path)
        assert not path.exists()


async def test_configuration_is_read_and_written(scene: Scene) -> None:
    async with scene.client() as client:
        assert (await client.read_config()).config.model == "mock-model"
        written = await client.write_config({"model": "other", "model_reasoning_effort": "low"})
        assert (written.status, written.file_path) == ("ok", str(scene.home / "config.toml"))
        config = (await client.read_config()).config
        assert (config.model, config.model_reasoning_effort) == ("other", "low")
        with pytest.raises(RequestRefused):
            await client.write_config({"model": "third"}, expected_version="sha256:0")


async def test_an_account_is_signed_in_with_a_key_and_out(scene: Scene) -> None:
    (scene.home / "config.toml").write_text(OFFLINE.get(scene.release, ""), "utf-8")
    async with scene.client() as client:
        assert (await client.read_account()).account is None
        await client.login_api_key("sk-none")
        assert (await client.read_account()).account == ApiKeyAccount()
        await client.logout()
        assert (await client.read_account()).account is None


@pytest.mark.parametrize("scene", [NEWEST], indirect=True)
async def test_a_sign_in_by_browser_can_be_cancelled(scene: Scene) -> None:
    """With one server only: the callback uses a fixed port of this machine."""
    async with scene.client() as client:
        login = await client.login_chatgpt()
        assert login.url.startswith("https://auth.openai.com/")
        assert login.code is None
        await login.cancel()
        with pytest.raises(LoginFailed):
            await login.wait()


async def test_notifications_outside_turns_arrive_in_the_stream_of_the_server(scene: Scene) -> None:
    async with scene.client() as client:
        events = client.events()
        thread = await client.start_thread()
        while not isinstance(event := await anext(events), ThreadStarted):
            pass
        assert event.thread.id == thread.id


@contextmanager
def listening(scene: Scene) -> Iterator[str]:
    """Run the same program on a socket."""
    stderr = scene.home / "stderr"
    with stderr.open("wb") as file:
        process = subprocess.Popen(
            [scene.program, "app-server", "--listen", "ws://127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stderr=file,
            env=environment(scene.home, CODEX_HOME=str(scene.home)),
        )
    try:
        yield ServerProcess(process, stderr).websocket_url()
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def relayed(scene: Scene) -> AsyncIterator[Relay]:
    """Yield a connection to it that can be cut."""
    with listening(scene) as url:
        async with asyncio.timeout(SECONDS), relay(url) as line:
            yield line


@having("--listen")
@pytest.mark.parametrize("is_late", [False, True], ids=["returns in time", "returns too late"])
async def test_a_turn_survives_a_broken_connection(scene: Scene, is_late: bool) -> None:
    """By `afterSeq` on Treadle, by reading the thread again on the reference."""
    gate = asyncio.Event()
    steps = message("hello world", "m1", ["hello", " world"])
    steps.insert(2, gate)  # between the two words
    scene.model.plays(Reply([created(), *steps, completed()]), says("and on"))
    backoff = Backoff(attempts=200, first_s=0.01, longest_s=0.05)
    async with relayed(scene) as line, AsyncClient(line.url, reconnect=backoff) as client:
        thread = await client.start_thread(cwd=scene.workspace)
        turn = await thread.start_turn("hi")
        while not isinstance(event := await anext(turn), AgentMessageDelta):
            pass
        words = event.delta
        line.cut()
        if is_late:
            gate.set()
            await ended_without_us(scene)
        line.restore()
        gate.set()
        words += "".join([word async for word in turn.text()])
        result = await turn.result()
        assert (result.agent_message, result.turn.status) == ("hello world", "completed")
        assert words == "hello world"
        assert len(result.items) == 2
        assert (await thread.run("next")).agent_message == "and on"


async def ended_without_us(scene: Scene) -> None:
    """Wait until the server has stored the end of the turn."""
    # There is no event from another process to wait for.
    while not any("task_complete" in path.read_text() for path in rollouts(scene)):  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.01)


def rollouts(scene: Scene) -> list[Path]:
    return list(scene.home.glob("sessions/**/rollout-*.jsonl"))
