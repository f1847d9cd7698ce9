"""The scripted model: deterministic, without key and network.

It plays a script; without one it demonstrates the tools that it is offered.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec

from treadle.model.base import (
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelItem,
    ModelRequest,
    ModelTextDelta,
    RateLimits,
    ReasoningPartAdded,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    Rerouted,
    ResponseUsage,
    ToolInputDelta,
)
from treadle.model.scripted.demonstration import demonstrate
from treadle.model.scripted.script import (
    AnyStep,
    Calls,
    CustomCall,
    Drops,
    Ends,
    Fails,
    Gives,
    ReportsLimits,
    Reroutes,
    Response,
    Says,
    Script,
    ScriptLike,
    Searches,
    Spends,
    Step,
    Thinks,
    Waits,
    WaitsFor,
    calls,
    custom_call,
    drops,
    ends,
    fails,
    gives,
    limits,
    load_script,
    plan,
    reroutes,
    says,
    searches,
    thinks,
    usage,
    waits,
    waits_for,
)
from treadle.protocol.error import CodexErrorInfoDetail, HttpStatus

__all__ = [
    "ScriptedModel",
    "calls",
    "custom_call",
    "drops",
    "ends",
    "fails",
    "gives",
    "limits",
    "load_script",
    "plan",
    "reroutes",
    "says",
    "searches",
    "thinks",
    "usage",
    "waits",
    "waits_for",
]

Sleep = Callable[[float], Awaitable[None]]

_NAMESPACE: Final = uuid.UUID("5b5a6f0e-3f63-4f0c-8d38-6a4c1d2b7e11")
# A script never waits for a network, so it must yield to other tasks itself.
_BREATH: Final = 64


class ScriptedModel:
    """Plays one response of its script for each request, in order."""

    def __init__(
        self,
        script: ScriptLike | None = None,
        *,
        provider_id: str = "scripted",
        sleep: Sleep = asyncio.sleep,
        keep_requests: int = 1000,
        requests_file: Path | None = None,
    ) -> None:
        self.provider_id = provider_id
        self.requests: deque[ModelRequest] = deque(maxlen=keep_requests)
        """The requests so far; only the newest if there were very many."""
        self._script = script if script is None or callable(script) else _as_script(script)
        self._sleep = sleep
        self._count = 0
        # One request per line, for tests that run the server as a separate process.
        self._requests_file = requests_file

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Play the next response."""
        number = self._count
        self._count += 1
        self.requests.append(request)
        if self._requests_file is not None:
            with self._requests_file.open("ab") as file:
                file.write(msgspec.json.encode(request) + b"\n")
        steps = _as_steps(self._choose(request, number))
        return _Play(request, number, self._sleep).events(steps)

    async def list_models(self) -> Sequence[str] | None:
        """Return None: the catalog has all names."""
        return None

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _choose(self, request: ModelRequest, number: int) -> Response:
        script = self._script
        if script is None:
            return demonstrate(request)
        if not isinstance(script, Script):
            return script(request)
        if number < len(script.responses):
            return script.responses[number]
        if script.then == "repeat" and script.responses:
            return script.responses[-1]
        if script.then == "demonstrate":
            return demonstrate(request)
        count = len(script.responses)
        return Fails(message=f"the script has {count} responses, this is request {number + 1}")


class _Play:
    """Plays one response."""

    def __init__(self, request: ModelRequest, number: int, sleep: Sleep) -> None:
        self._seed = f"{request.thread_id}:{request.turn_id}:{number}"
        self._sleep = sleep
        self._made = 0
        self._emitted = False
        self._usage: ResponseUsage | None = None
        self._end_turn: bool | None = None

    async def events(self, steps: Sequence[AnyStep]) -> AsyncGenerator[ModelEvent, None]:
        response_id = self._new_id("resp")
        since_breath = 0
        if not steps or not isinstance(steps[0], Fails):
            yield Created(response_id)
        for step in steps:
            if isinstance(step, Waits):
                await self._sleep(step.seconds)
            elif isinstance(step, WaitsFor):
                await step.event.wait()
            else:
                for event in self._perform(step):
                    self._emitted = True
                    yield event
                    since_breath += 1
                    if since_breath == _BREATH:
                        since_breath = 0
                        await asyncio.sleep(0)
        yield Completed(response_id, self._usage, self._end_turn)

    def _perform(self, step: Step) -> Iterator[ModelEvent]:
        match step:
            case Spends():
                self._usage = step.usage
                return iter(())
            case Ends():
                self._end_turn = step.end_turn
                return iter(())
            case Reroutes():
                return iter((Rerouted(step.to_model, step.reason),))
            case ReportsLimits():
                return iter((RateLimits(step.snapshot),))
            case Fails():
                raise self._failure(step)
            case Drops():
                raise self._disconnection(step)
            case _:
                return self._item_events(step)

    def _item_events(self, step: Step) -> Iterator[ModelEvent]:
        match step:
            case Says():
                return self._say(step)
            case Thinks():
                return self._think(step)
            case Calls() | CustomCall():
                return self._call(step)
            case Searches():
                return self._search(step)
            case Gives():
                return self._give(step)
            case _:
                raise TypeError(f"not a step: {step!r}")

    def _say(self, step: Says) -> Iterator[ModelEvent]:
        id_ = step.id or self._new_id("msg")
        item: ModelItem = {"type": "message", "id": id_, "role": "assistant"}
        if step.phase is not None:
            item["phase"] = step.phase
        yield ItemStarted({**item, "status": "in_progress", "content": []})
        for delta in step.deltas or ():
            yield ModelTextDelta(id_, delta)
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        yield ItemDone({**item, "status": "completed", "content": content})

    def _think(self, step: Thinks) -> Iterator[ModelEvent]:
        id_ = step.id or self._new_id("rs")
        item: ModelItem = {"type": "reasoning", "id": id_, "summary": []}
        yield ItemStarted(item)
        for index, paragraph in enumerate(step.summary):
            yield ReasoningPartAdded(id_, index)
            yield ReasoningSummaryDelta(id_, index, paragraph)
        if step.raw is not None:
            yield ReasoningTextDelta(id_, 0, step.raw)
        done: ModelItem = dict(item)
        done["summary"] = [{"type": "summary_text", "text": text} for text in step.summary]
        if step.raw is not None:
            done["content"] = [{"type": "reasoning_text", "text": step.raw}]
        if step.encrypted is not None:
            done["encrypted_content"] = step.encrypted
        yield ItemDone(done)

    def _call(self, step: Calls | CustomCall) -> Iterator[ModelEvent]:
        call_id = step.call_id or self._new_id("call")
        if isinstance(step, Calls):
            key, text = "arguments", _as_json(step.arguments)
            item: ModelItem = {"type": "function_call", "id": step.id or self._new_id("fc")}
            if step.namespace is not None:
                item["namespace"] = step.namespace
        else:
            key, text = "input", step.input
            item = {"type": "custom_tool_call", "id": step.id or self._new_id("ctc")}
        item |= {"call_id": call_id, "name": step.tool}
        yield ItemStarted({**item, "status": "in_progress", key: ""})
        for delta in step.deltas or ():
            yield ToolInputDelta(str(item["id"]), call_id, delta)
        yield ItemDone({**item, "status": "completed", key: text})

    def _search(self, step: Searches) -> Iterator[ModelEvent]:
        item: ModelItem = {"type": "web_search_call", "id": step.id or self._new_id("ws")}
        yield ItemStarted({**item, "status": "in_progress"})
        action = {"type": "search", "query": step.query}
        yield ItemDone({**item, "status": "completed", "action": action})

    def _give(self, step: Gives) -> Iterator[ModelEvent]:
        item = dict(step.item)
        item.setdefault("id", self._new_id("item"))
        yield ItemStarted(item)
        yield ItemDone(item)

    def _failure(self, step: Fails) -> ModelError:
        return ModelError(
            step.message,
            info=step.info,
            http_status=step.status,
            retry_after_s=step.retry_after,
            is_retryable=step.is_retryable,
            emitted=self._emitted,
            phase="stream" if self._emitted else "request",
        )

    def _disconnection(self, step: Drops) -> ModelError:
        return ModelError(
            step.message,
            info=CodexErrorInfoDetail(response_stream_disconnected=HttpStatus()),
            is_retryable=True,
            emitted=self._emitted,
            phase="stream",
        )

    def _new_id(self, prefix: str) -> str:
        """Return an id that depends only on its position in the turn."""
        self._made += 1
        return f"{prefix}_{uuid.uuid5(_NAMESPACE, f'{self._seed}:{self._made}').hex}"


def _as_script(script: Script | Sequence[Response]) -> Script:
    return script if isinstance(script, Script) else Script(responses=script)


def _as_steps(response: Response) -> list[AnyStep]:
    if isinstance(response, str):
        return [says(response)]
    given = [response] if isinstance(response, Step) else response
    steps = [says(step) if isinstance(step, str) else step for step in given]
    return cast("list[AnyStep]", steps)  # steps come from the functions of `script`, all known here


def _as_json(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
