"""The public API: all methods exist, both clients match, imports are light."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import assert_type, get_type_hints

import msgspec
import pytest

import treadle
from treadle.client import options
from treadle.client.accounts import AsyncLogin
from treadle.client.async_client import AsyncClient
from treadle.client.blocking import Command, Login, Thread, Turn
from treadle.client.client import Client
from treadle.client.commands import AsyncCommand
from treadle.client.events import AgentMessageDelta
from treadle.client.result import TurnResult
from treadle.client.thread import AsyncThread
from treadle.client.turn import AsyncTurn
from treadle.protocol.client_requests import CLIENT_REQUESTS
from treadle.protocol.command import CommandExecParams
from treadle.protocol.legacy import LEGACY_REQUESTS
from treadle.protocol.model import ModelListResponse
from treadle.protocol.thread import Thread as StoredThread
from treadle.protocol.thread import ThreadForkParams, ThreadResumeParams, ThreadStartParams
from treadle.protocol.thread_manage import ThreadListResponse
from treadle.protocol.turn import TurnStartParams
from treadle.protocol.usage import ThreadTokenUsage
from treadle.testing import says
from treadle.testing.plugin import ClientFactory


def test_each_client_has_one_method_for_each_request_of_the_table() -> None:
    requests = {**CLIENT_REQUESTS, **LEGACY_REQUESTS}
    names = {method: request.call for method, request in requests.items() if request.call}
    assert names.keys() == requests.keys() - {"initialize"}
    assert len(set(names.values())) == len(names)
    assert all(hasattr(AsyncClient, name) and hasattr(Client, name) for name in names.values())


def test_generated_files_follow_from_the_table() -> None:
    """If this fails: `make generate`."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "scripts.generate", "--check"]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def public(kind: type) -> dict[str, object]:
    return {
        name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")
    }


PAIRS = [
    (AsyncClient, Client),
    (AsyncThread, Thread),
    (AsyncTurn, Turn),
    (AsyncCommand, Command),
    (AsyncLogin, Login),
]
# Only the blocking client has these.
ONLY_ASYNC = {AsyncThread: {"join"}, AsyncCommand: {"start"}, AsyncTurn: {"tap", "check"}}
# Attributes of the async client are properties of the blocking one.
ATTRIBUTES = {AsyncThread: {"id", "session"}, AsyncCommand: {"id"}}


async def test_type_checkers_know_the_result_types(treadle_client: ClientFactory) -> None:
    """No result of a client is `Any`; mypy checks this."""
    async with treadle_client([says("One."), says("Two.")]) as client:
        thread = await client.start_thread()
        assert_type(thread, AsyncThread)
        result = await thread.run("hi")
        assert_type(result, TurnResult[None])
        assert_type(result.usage, ThreadTokenUsage | None)
        stream = thread.stream("hi")
        assert_type(stream, AsyncTurn)
        async for event in stream:
            assert_type(event, msgspec.Struct)
            if isinstance(event, AgentMessageDelta):
                assert_type(event.delta, str)
        assert_type(await client.list_models(), ModelListResponse)
        assert_type(await client.list_threads(limit=1), ThreadListResponse)
        async for stored in client.iter_threads():
            assert_type(stored, StoredThread)


def type_checkers_know_the_same_of_the_other(client: Client) -> None:
    """For mypy only; never called."""
    thread = client.start_thread()
    assert_type(thread, Thread)
    assert_type(thread.run("hi"), TurnResult[None])
    for event in thread.stream("hi"):
        assert_type(event, msgspec.Struct)
    for words in thread.stream("hi").text():
        assert_type(words, str)
    assert_type(client.list_models(), ModelListResponse)


@pytest.mark.parametrize(("kind", "twin"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_clients_have_the_same_names_and_signatures(kind: type, twin: type) -> None:
    ours, theirs = public(kind), public(twin)
    extra = ONLY_ASYNC.get(kind, set())
    assert ours.keys() - extra | ATTRIBUTES.get(kind, set()) == theirs.keys() - {"portal"}
    for name in ours.keys() - extra:
        if not callable(ours[name]):
            continue
        one = inspect.signature(getattr(kind, name)).parameters
        two = inspect.signature(getattr(twin, name)).parameters
        assert list(one.values()) == list(two.values()), name


@pytest.mark.parametrize(
    ("option_type", "params", "elsewhere"),
    [
        (options.ThreadOptions, ThreadStartParams, {"dynamic_tools"}),
        (options.ResumeOptions, ThreadResumeParams, {"thread_id", "dynamic_tools"}),
        (options.ForkOptions, ThreadForkParams, {"thread_id"}),
        (options.TurnOptions, TurnStartParams, {"thread_id", "input"}),
        (
            options.CommandOptions,
            CommandExecParams,
            {"command", "process_id", "size", "stream_stdin", "stream_stdout_stderr", "tty"},
        ),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_options_are_the_fields_of_the_request(
    option_type: type, params: type[msgspec.Struct], elsewhere: set[str]
) -> None:
    assert set(get_type_hints(option_type)) == set(params.__struct_fields__) - elsewhere


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True
    )
    return set(json.loads(done.stdout))


def test_importing_the_package_imports_none_of_its_modules() -> None:
    assert {name for name in loaded_by("import treadle") if name.startswith("treadle.")} == set()


def test_importing_the_client_imports_neither_a_server_nor_optional_modules() -> None:
    loaded = loaded_by("from treadle import AsyncClient")
    parts = {name.split(".")[1] for name in loaded if name.startswith("treadle.")}
    assert parts == {"client", "connection", "jsonrpc", "protocol", "support", "transport"}
    heavy = {"pydantic", "aiohttp", "mcp", "jwt", "rich", "treadle.transport.websocket.listener"}
    assert loaded & heavy == set()


def test_every_exported_name_can_be_imported() -> None:
    for name in treadle.__all__:
        assert getattr(treadle, name) is not None
    assert dir(treadle) == sorted(treadle.__all__)
    with pytest.raises(AttributeError):
        treadle.no_such_name  # noqa: B018 - asking is the test
