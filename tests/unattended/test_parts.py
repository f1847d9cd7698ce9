"""The parts of an unattended session that need no server: workspace, usage, GraphQL."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from treadle.protocol.base import JsonValue
from treadle.protocol.tool import (
    DynamicToolCallResponse,
    InputTextDynamicToolCallOutputContentItem,
)
from treadle.support.text.secrets import Secrets
from treadle.unattended import EXIT_CODES, ErrorKind, InvalidWorkspaceCwd, Usage
from treadle.unattended.graphql import (
    MAX_ANSWER_BYTES,
    InvalidQuery,
    graphql_tool,
    operations,
    read_arguments,
)
from treadle.unattended.usage import RateLimit, UsageLedger, Window, rate_limits_in
from treadle.unattended.workspace import Workspace

# -- the workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "issue-1").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    return folder


def test_a_folder_below_the_root_is_resolved_to_its_real_path(root: Path) -> None:
    (root / "link").symlink_to(root / "issue-1")
    assert Workspace.guarded(root / "link", root) == Workspace(root / "issue-1", root)
    assert Workspace.guarded(root / "issue-1" / ".." / "issue-1", root).cwd == root / "issue-1"


def test_a_root_that_is_a_link_contains_its_folders(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    guarded = Workspace.guarded(tmp_path / "alias" / "issue-1", tmp_path / "alias")
    assert guarded == Workspace(root / "issue-1", root)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".", "workspace_root"),
        ("issue-1/..", "workspace_root"),
        ("..", "outside_workspace_root"),
        ("../elsewhere", "outside_workspace_root"),
        ("../root-2", "outside_workspace_root"),
        ("escape", "symlink_escape"),
        ("missing", "path_unreadable"),
        ("file", "path_unreadable"),
        ("loop", "path_unreadable"),
    ],
)
def test_every_way_out_is_refused_with_its_reason(root: Path, path: str, reason: str) -> None:
    (root.parent / "root-2").mkdir()
    (root / "escape").symlink_to(root.parent / "elsewhere")
    (root / "loop").symlink_to(root / "loop")
    (root / "file").touch()
    with pytest.raises(InvalidWorkspaceCwd) as caught:
        Workspace.guarded(root / path, root)
    assert caught.value.reason == reason


def test_a_folder_that_becomes_a_link_is_noticed(root: Path) -> None:
    workspace = Workspace.guarded(root / "issue-1", root)
    workspace.check()
    (root / "issue-1").rmdir()
    (root / "issue-1").symlink_to(root.parent / "elsewhere")
    with pytest.raises(InvalidWorkspaceCwd):
        workspace.check()


# -- usage


def report(total: int, last: int, thread_id: str = "t") -> JsonValue:
    """Return the usage report of a current server."""
    counts = [{"inputTokens": n, "outputTokens": 0, "totalTokens": n} for n in (total, last)]
    return {"threadId": thread_id, "tokenUsage": {"total": counts[0], "last": counts[1]}}


UPDATED = "thread/tokenUsage/updated"


def test_a_total_that_is_repeated_or_late_counts_once() -> None:
    ledger = UsageLedger()
    for total in (10, 30, 30, 10, 45):
        assert ledger.note(UPDATED, report(total, 5))
    assert ledger.used == Usage(45, 0, 0, 0, 45)


def test_threads_of_one_session_add_up() -> None:
    ledger = UsageLedger()
    ledger.note(UPDATED, report(10, 10))
    ledger.note(UPDATED, report(7, 7, "child"))
    assert ledger.used.total_tokens == 17


def test_usage_that_a_resumed_thread_reports_before_the_model_works_is_not_counted() -> None:
    """0.118.0 repeats the old total within the new turn, others when the thread is resumed."""
    ledger = UsageLedger()
    ledger.resume("t")
    ledger.note(UPDATED, report(100, 20))
    ledger.note(UPDATED, report(100, 20))
    ledger.work("t")
    ledger.note(UPDATED, report(130, 30))
    assert ledger.used.total_tokens == 30


def test_a_resumed_thread_without_an_earlier_report_counts_its_last_request() -> None:
    ledger = UsageLedger()
    ledger.resume("t")
    ledger.work("t")
    ledger.note(UPDATED, report(130, 30))
    ledger.note(UPDATED, report(150, 20))
    assert ledger.used.total_tokens == 50


def test_a_resumed_thread_with_a_known_total_counts_all_beyond_it() -> None:
    """Including what was used before a crash and never reported."""
    ledger = UsageLedger()
    ledger.resume("t", Usage(100, 0, 0, 0, 100))
    ledger.note(UPDATED, report(110, 10))
    ledger.note(UPDATED, report(130, 20))
    assert (ledger.used.total_tokens, ledger.total("t")) == (30, Usage(130, 0, 0, 0, 130))


def test_older_reports_are_read_and_those_without_totals_are_ignored() -> None:
    ledger = UsageLedger()
    total = {
        "input_tokens": 9,
        "cached_input_tokens": 4,
        "output_tokens": 3,
        "reasoning_output_tokens": 1,
        "total_tokens": 12,
    }
    msg = {"type": "token_count", "info": {"total_token_usage": total, "last_token_usage": total}}
    assert ledger.note("codex/event/token_count", {"conversationId": "t", "msg": msg})
    assert not ledger.note("turn/completed", {"threadId": "t", "usage": {"input_tokens": 99}})
    assert not ledger.note(UPDATED, {"threadId": "t", "tokenUsage": None})
    assert not ledger.note(UPDATED, None)
    assert ledger.used == Usage(9, 4, 3, 1, 12)


def test_an_exhausted_limit_says_when_to_retry() -> None:
    params = {
        "rate_limits": {
            "primary": {"used_percent": 100.0, "window_minutes": 300, "resets_at": 50},
            "secondary": {"used_percent": 20.0, "window_minutes": 10080, "resets_at": 900},
        }
    }
    (limit,) = rate_limits_in(params)
    assert limit == RateLimit("default", None, Window(100.0, 300, 50), Window(20.0, 10080, 900))
    assert limit.retry_at == 50


def test_every_kind_of_error_has_its_own_exit_code() -> None:
    assert set(EXIT_CODES) == set(ErrorKind)
    assert len(set(EXIT_CODES.values())) == len(ErrorKind)


# -- GraphQL


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("{ viewer { id } }", ["query"]),
        ("query Me($a: In = {b: {c: 1}}) { viewer(a: $a) { id } }", ["query"]),
        ('mutation { say(text: "query { x } }") { ok } }', ["mutation"]),
        ("fragment F on User { id } query { viewer { ...F } }", ["query"]),
        ("# query A { x }\nquery B { x }", ["query"]),
        ('query { x(text: """ } mutation { """) }', ["query"]),
        ("query A { x } mutation B { y }", ["query", "mutation"]),
        ("{ a } { b }", ["query", "query"]),
        ("query A @skip(if: true) { x } query B { y }", ["query", "query"]),
        ("fragment F on User { id }", []),
        ("", []),
    ],
)
def test_operations_are_counted_as_graphql_has_them(query: str, kinds: list[str]) -> None:
    assert operations(query) == kinds


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (None, "expected an object"),
        ({}, "must be a non-empty string"),
        ({"query": "  "}, "must be a non-empty string"),
        ({"query": "{ a }", "variables": [1]}, "must be an object"),
        ({"query": "query A { x } query B { y }"}, "exactly one operation, not 2"),
        ({"query": "subscription { x }"}, "subscription"),
    ],
)
def test_anything_but_a_single_operation_is_refused(arguments: JsonValue, words: str) -> None:
    with pytest.raises(InvalidQuery, match=words):
        read_arguments(arguments)


@asynccontextmanager
async def service(status: int, answer: JsonValue) -> AsyncIterator[tuple[str, list[JsonValue]]]:
    """Run a GraphQL service on the loopback interface: its address, and what it received."""
    requests: list[JsonValue] = []

    async def take(request: web.Request) -> web.Response:
        requests.append([request.headers["Authorization"], await request.json()])
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return web.Response(status=status, text=text)

    app = web.Application()
    app.router.add_post("/graphql", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with asyncio.timeout(20):
            port = runner.addresses[0][1]
            yield f"http://127.0.0.1:{port}/graphql", requests
    finally:
        await runner.cleanup()


async def ask(endpoint: str, token: str | None, arguments: JsonValue) -> tuple[bool, JsonValue]:
    """Call the tool, and return whether it succeeded and what the model reads."""
    outcome = graphql_tool(endpoint, token)(arguments)
    response = await outcome  # type: ignore[misc]  # its function is a coroutine function
    assert isinstance(response, DynamicToolCallResponse)
    (item,) = response.content_items
    assert isinstance(item, InputTextDynamicToolCallOutputContentItem)
    return response.success, json.loads(item.text)


async def test_the_tool_posts_the_operation_with_the_token() -> None:
    answer = {"data": {"viewer": {"id": "usr_123"}}}
    async with service(200, answer) as (endpoint, requests):
        assert await ask(endpoint, "key", {"query": "{ viewer { id } }"}) == (True, answer)
        assert await ask(endpoint, "key", "{ viewer { id } }") == (True, answer)
    assert requests == [["key", {"query": "{ viewer { id } }", "variables": {}}]] * 2


async def test_an_answer_is_searched_for_the_token_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of 16 MiB with many escapes held the session for ten seconds."""
    threads: list[threading.Thread] = []
    redact = Secrets.redact

    def noted(secrets: Secrets, text: str, *, limit: int | None = None) -> str:
        threads.append(threading.current_thread())
        return redact(secrets, text, limit=limit)

    monkeypatch.setattr(Secrets, "redact", noted)
    async with service(200, {"data": None}) as (endpoint, _):
        await ask(endpoint, "key", {"query": "{ x }"})
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        (f'"{"x" * MAX_ANSWER_BYTES}"', "bytes"),
    ],
)
async def test_an_answer_that_is_too_large_or_too_deep_fails_the_call(
    answer: str, words: str
) -> None:
    async with service(200, answer) as (endpoint, _):
        success, said = await ask(endpoint, "key", {"query": "{ x }"})
    assert not success
    assert words in said["error"]["message"]


async def test_errors_in_the_answer_fail_the_call_and_keep_the_answer() -> None:
    answer = {"data": None, "errors": [{"message": "no such field"}]}
    async with service(200, answer) as (endpoint, _):
        assert await ask(endpoint, "key", {"query": "{ x }"}) == (False, answer)


@pytest.mark.parametrize(
    ("status", "token", "words"),
    [(500, "key", "HTTP status 500"), (200, None, "has no token")],
)
async def test_an_invalid_query_is_a_failed_call(
    status: int, token: str | None, words: str
) -> None:
    async with service(status, {}) as (endpoint, _):
        success, document = await ask(endpoint, token, {"query": "{ x }"})
    assert not success
    assert words in document["error"]["message"]


async def test_an_unreachable_service_is_a_failed_call() -> None:
    success, document = await ask("http://127.0.0.1:9/graphql", "key", {"query": "{ x }"})
    assert not success
    assert "the request failed" in document["error"]["message"]
