"""`treadle exec` and `codex exec` 0.163.0: the same model responses give the same events."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.execs import ANYWHERE, KNOWN, Bench, Ran, bench
from tests.harness.golden import Golden
from tests.harness.mcp import stdio
from tests.harness.model_server import (
    Reply,
    added,
    calls,
    completed,
    created,
    done,
    fails,
    message,
    patches,
    refuses,
    says,
)
from tests.harness.placeholders import placeholders
from tests.harness.repositories import repository
from treadle.protocol.base import JsonValue

HERE = (ANYWHERE, "--json", *KNOWN)
WRITES = (*HERE, "-s", "workspace-write")
ADDS = "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch"
MOVES = (
    "*** Begin Patch\n*** Update File: a.txt\n*** Move to: b.txt\n@@\n-hello\n+bye\n"
    "*** Add File: c.txt\n+x\n*** End Patch"
)
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
FINDINGS = {
    "findings": [
        {
            "title": "[P1] bad",
            "body": "it is",
            "confidence_score": 0.9,
            "priority": 1,
            "code_location": {
                "absolute_file_path": "/a",
                "line_range": {"start": 2, "end": 2},
            },
        }
    ],
    "overall_correctness": "patch is incorrect",
    "overall_explanation": "hmm",
    "overall_confidence_score": 0.8,
}


@dataclass(frozen=True)
class Case:
    """Runs of a program, and which parts of its events may differ between the programs."""

    steps: Callable[[Bench], Awaitable[list[Ran]]]
    config: str = ""
    # Each program words its errors differently.
    unworded: bool = False
    values: frozenset[str] = field(default_factory=frozenset)


def once(*arguments: str, replies: list[Reply], given: bytes = b"") -> Case:
    """Return a case of a single run."""

    async def steps(at: Bench) -> list[Ran]:
        return [await at.run(*arguments, replies=replies, given=given)]

    return Case(steps)


def shell(command: str, call_id: str) -> Reply:
    """The model runs a command."""
    return calls("exec_command", {"cmd": command}, call_id)


def tool(name: str, arguments: JsonValue, call_id: str) -> Reply:
    """The model calls a tool of the MCP server."""
    call = {"type": "function_call", "call_id": call_id, "name": name, "namespace": "mcp__t"}
    item = {**call, "arguments": json.dumps(arguments)}
    return Reply([created(call_id), done(item), completed(call_id)])


def reasoned() -> Reply:
    """The model sends reasoning in two parts and a message."""
    parts = [{"type": "summary_text", "text": text} for text in ("**Thinking**\n\nhard", "more")]
    item = {"type": "reasoning", "id": "rs-1", "summary": parts}
    start = added({**item, "summary": []})
    return Reply([created(), start, done(item), *message("so", "m1", ["s", "o"]), completed()])


def searched() -> Reply:
    """The model searches the web."""
    call = {"type": "web_search_call", "id": "ws-1"}
    action = {"type": "search", "query": "weather"}
    found = {**call, "status": "completed", "action": action}
    start = added({**call, "status": "in_progress"})
    return Reply([created(), start, done(found), *message("sunny", "m1"), completed()])


async def goes_on(at: Bench) -> list[Ran]:
    """A thread is started, continued in every way, and forked."""
    first = await at.run(*HERE, "one", replies=[says("1", "r1")])
    return [
        first,
        await at.run(*HERE, "resume", first.thread_id, "two", replies=[says("2", "r2")]),
        await at.run(*HERE, "resume", "--last", "three", replies=[says("3", "r3")]),
        await at.run(*HERE, "resume", first.thread_id, given=b"four", replies=[says("4", "r4")]),
        await at.run(*HERE, "fork", first.thread_id, "five", replies=[says("5", "r5")]),
        await at.run(*HERE, "fork", first.thread_id),
        await at.run("--json", ANYWHERE, "resume", "--last", *KNOWN, "six"),
    ]


async def reviews(at: Bench) -> list[Ran]:
    """Uncommitted changes are reviewed."""
    repository(at.cwd)
    (at.cwd / "a.txt").write_text("two\n")
    found = says(json.dumps(FINDINGS), "r1")
    return [await at.run("--json", *KNOWN, "review", "--uncommitted", replies=[found])]


async def fits_a_schema(at: Bench) -> list[Ran]:
    """The answer must match a schema, and is also written to a file."""
    (at.cwd / "schema").write_text(json.dumps(SCHEMA))
    flags = ("--output-schema", "schema", "-o", "last")
    ran = await at.run(*HERE, *flags, "go", replies=[says('{"a":"b"}')])
    assert at.model.requests[0].body["text"]["format"] == {
        "type": "json_schema",
        "strict": True,
        "name": "codex_output_schema",
        "schema": SCHEMA,
    }
    assert (at.cwd / "last").read_text() == '{"a":"b"}'
    return [ran]


ESCALATES = {"cmd": "true", "sandbox_permissions": "require_escalated", "justification": "x"}
CASES = {
    "an answer": once(*HERE, "hi", replies=[says("hello")]),
    "the older name of --json": once(
        ANYWHERE, "--experimental-json", *KNOWN, given=b"hi", replies=[]
    ),
    "commands": once(
        *WRITES, "go", replies=[shell("echo a; exit 3", "c1"), shell("echo b", "c2"), says("ok")]
    ),
    "patches": once(*WRITES, "go", replies=[patches(ADDS, "c1"), patches(MOVES, "c2"), says("ok")]),
    "thoughts": once(*HERE, "-c", "model_reasoning_summary=auto", "go", replies=[reasoned()]),
    "several messages": once(
        *HERE,
        "go",
        replies=[
            Reply([created(), *message("one", "m1"), *message("two", "m2"), completed()]),
        ],
    ),
    "an empty message": once(*HERE, "go", replies=[says("")]),
    "no message": once(*HERE, "go", replies=[Reply([created(), completed()])]),
    "a web search": once(*HERE, "go", replies=[searched()]),
    "going on": Case(goes_on),
    "a review": Case(reviews, values=frozenset({"usage"})),
    "a schema": Case(fits_a_schema),
    "tools of an MCP server": Case(
        once(
            *HERE, "go", replies=[tool("echo", {"text": "x"}, "c1"), tool("fail", {}, "c2")]
        ).steps,
        config=stdio("t"),
    ),
    # The guardian's answer is not a verdict, so it denies; the reference asks it three times.
    "a reviewer who cannot decide": Case(
        once(
            *HERE, "--approve-for-me", "go", replies=[calls("exec_command", ESCALATES, "c1")]
        ).steps,
        values=frozenset({"usage"}),
    ),
    "a request that is refused": Case(
        once(*HERE, "go", replies=[refuses(400, {"error": {"message": "no"}})]).steps, unworded=True
    ),
    "a stream that fails": Case(
        once(*HERE, "go", replies=[fails("server_error", "boom")]).steps, unworded=True
    ),
    "a stream that is tried again": Case(
        once(
            *HERE,
            "-c",
            "model_providers.mock_provider.stream_max_retries=2",
            "go",
            replies=[fails("server_error", "boom"), says("ok")],
        ).steps,
        unworded=True,
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_both_programs_print_the_same_events(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    async with bench(golden.program, tmp_path, case.config) as at:
        runs = [
            {"exitCode": ran.exit_code, "events": shown(case, ran)} for ran in await case.steps(at)
        ]
        golden.check(name, placeholders(runs, {str(at.cwd): "<workspace>"}))


def shown(case: Case, ran: Ran) -> JsonValue:
    """Return the events of a run, without the parts that may differ."""
    return [_plain(case, event) for event in ran.events]


def _plain(case: Case, event: JsonValue) -> JsonValue:
    event = {name: each for name, each in event.items() if name not in case.values}
    if case.unworded and "message" in event:
        event["message"] = bool(event["message"])
    if case.unworded and "error" in event:
        event["error"] = {"message": bool(event["error"]["message"])}
    item = event.get("item", {})
    if item.get("type") == "web_search":
        # The reference writes the key `id` twice, and decoders use the second.
        event["item"] = {name: each for name, each in item.items() if name != "id"}
    return event


MISTAKES: dict[str, tuple[list[str], bytes]] = {
    "an unknown option": ([ANYWHERE, "--nope", "hi"], b""),
    "a word too many": ([ANYWHERE, "a", "b"], b""),
    "an unknown sandbox": ([ANYWHERE, "-s", "nope", "hi"], b""),
    "an unknown color": ([ANYWHERE, "--color", "nope", "hi"], b""),
    "no prompt": ([ANYWHERE], b""),
    "a blank prompt": ([ANYWHERE, "-"], b" \n"),
    "a prompt that is not text": ([ANYWHERE], b"a\xffb"),
    "no repository": (["hi"], b""),
    "a folder that is not there": ([ANYWHERE, "-C", "nope", "hi"], b""),
    "a schema that is not there": ([ANYWHERE, "--output-schema", "nope", "hi"], b""),
    "a schema that is not JSON": ([ANYWHERE, "--output-schema", "/etc/passwd", "hi"], b""),
    "an override without a value": ([ANYWHERE, "-c", "model", "hi"], b""),
    "a value that does not fit": ([ANYWHERE, "-c", 'sandbox_mode="nope"', "hi"], b""),
    "a thread that is not there": (
        [ANYWHERE, "resume", "01a1e5e7-fed8-7df3-bd41-f02590f032f3", "hi"],
        b"",
    ),
    "a fork of nothing": ([ANYWHERE, "fork"], b""),
    "a fork of an unknown name": ([ANYWHERE, "fork", "nope", "hi"], b""),
    "a review of nothing": ([ANYWHERE, "review"], b""),
    "a review of two things": ([ANYWHERE, "review", "--uncommitted", "hi"], b""),
    "pictures that swallow the prompt": ([ANYWHERE, "-i", "a.png", "hi"], b""),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_both_programs_refuse_with_the_same_exit_code(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    arguments, given = MISTAKES[name]
    async with bench(golden.program, tmp_path) as at:
        ran = await at.run("--json", *arguments, given=given)
        assert (ran.stdout, bool(ran.stderr), at.model.requests) == ("", True, [])
    assert "Traceback" not in ran.stderr
    assert ran.exit_code in (1, 2)
    golden.check(f"refused, {name}", {"exitCode": ran.exit_code})


PROMPTS: dict[str, tuple[list[str], bytes]] = {
    "an argument": (["hi"], b""),
    "what is piped in": ([], b"hi\n"),
    "a dash": (["-"], b"hi\n"),
    "both": (["hi"], b"and more\n"),
    "both, without a line's end": (["hi"], b"and more"),
    "a blank besides an argument": (["hi"], b" \n"),
    "a mark of UTF-8": ([], b"\xef\xbb\xbfhi"),
    "UTF-16": ([], "hü".encode("utf-16")),
    "an empty argument": ([""], b""),
    "an argument after the end of options": (["--", "--help"], b""),
    "a word that is a command elsewhere": (["--", "resume"], b""),
}


@pytest.mark.parametrize("name", PROMPTS)
async def test_both_programs_ask_the_model_the_same(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    arguments, given = PROMPTS[name]
    async with bench(golden.program, tmp_path) as at:
        ran = await at.run(ANYWHERE, *KNOWN, *arguments, given=given)
        assert (ran.exit_code, ran.stdout) == (0, "done\n")
        golden.check(
            f"prompt, {name}", [list(pair) for pair in at.model.requests[0].conversation()]
        )
