"""The language of scripted models: steps, responses of steps, and scripts of responses.

In JSON a step is an object whose `type` names it (`{"type": "says", "text": "hi"}`), or a plain
string, which is a message. A response is a list of steps, a script a list of responses or an object
`{"responses": [...], "then": "demonstrate" | "fail" | "repeat"}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from treadle.model.base import ModelItem, ModelRequest, ResponseUsage
from treadle.protocol.base import JsonValue
from treadle.protocol.error import CodexErrorInfo


class Step(Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """One action of a scripted model."""


class Says(Step, tag="says", frozen=True):
    """An assistant message, whole or in the given deltas."""

    text: str
    deltas: list[str] | None = None
    id: str | None = None
    phase: str | None = None


class Thinks(Step, tag="thinks", frozen=True):
    """A reasoning item: paragraphs of a summary, raw reasoning, or both."""

    summary: list[str] = []
    raw: str | None = None
    encrypted: str | None = None
    id: str | None = None


class Calls(Step, tag="calls", frozen=True):
    """A function call; the arguments are a JSON value, or a string that is sent unchanged."""

    tool: str
    arguments: JsonValue = None
    call_id: str | None = None
    namespace: str | None = None
    # Pieces in which the arguments are streamed, which must add up to them.
    deltas: list[str] | None = None
    id: str | None = None


class CustomCall(Step, tag="custom_call", frozen=True):
    """A call of a free-text tool."""

    tool: str
    input: str
    call_id: str | None = None
    deltas: list[str] | None = None
    id: str | None = None


class Searches(Step, tag="searches", frozen=True):
    """A web search that the provider ran itself."""

    query: str
    id: str | None = None


class Gives(Step, tag="gives", frozen=True):
    """Any item, exactly as written."""

    item: ModelItem


class Spends(Step, tag="usage", frozen=True):
    """The usage that the response reports at its end."""

    usage: ResponseUsage


class Reroutes(Step, tag="reroutes", frozen=True):
    """Another model responds."""

    to_model: str
    reason: str = "highRiskCyberActivity"


class ReportsLimits(Step, tag="limits", frozen=True):
    """An update of the account's rate limits."""

    snapshot: JsonValue


class Fails(Step, tag="fails", frozen=True):
    """The attempt fails here."""

    message: str = "scripted failure"
    info: CodexErrorInfo = "other"
    status: int | None = None
    retry_after: float | None = None
    is_retryable: bool = False


class Drops(Step, tag="drops", frozen=True):
    """The stream is cut here."""

    message: str = "stream disconnected before completion"


class Waits(Step, tag="waits", frozen=True):
    """A pause of some seconds, by the model's own clock."""

    seconds: float


class WaitsFor(Step, tag="waits_for", frozen=True):
    """A pause until the event is set; only in scripts written in Python."""

    event: asyncio.Event


class Ends(Step, tag="ends", frozen=True):
    """The end of the response: whether the provider reports that the turn is over."""

    end_turn: bool | None = None


PlainStep: TypeAlias = (
    Says
    | Thinks
    | Calls
    | CustomCall
    | Searches
    | Gives
    | Spends
    | Reroutes
    | ReportsLimits
    | Fails
    | Drops
    | Waits
    | Ends
)
AnyStep: TypeAlias = PlainStep | WaitsFor
Response: TypeAlias = Step | str | Sequence[Step | str]
Afterwards: TypeAlias = Literal["fail", "repeat", "demonstrate"]
"""What happens after the last response of the script."""


class Script(Struct, frozen=True):
    """Responses in the order of the requests."""

    responses: Sequence[Response]
    then: Afterwards = "fail"


ScriptLike: TypeAlias = Script | Sequence[Response] | Callable[[ModelRequest], Response]


def says(
    text: str,
    *,
    deltas: Sequence[str] | int | None = None,
    id_: str | None = None,
    phase: str | None = None,
) -> Says:
    """Send a message; `deltas` are its pieces, or the number of characters of each piece."""
    if isinstance(deltas, int):
        deltas = [text[at : at + deltas] for at in range(0, len(text), deltas)]
    pieces = list(deltas) if deltas is not None else None
    return Says(text=text, deltas=pieces, id=id_, phase=phase)


def thinks(
    *summary: str, raw: str | None = None, encrypted: str | None = None, id_: str | None = None
) -> Thinks:
    """Reason, with one paragraph of summary per argument."""
    return Thinks(summary=list(summary), raw=raw, encrypted=encrypted, id=id_)


def calls(
    tool: str,
    arguments: JsonValue = None,
    *,
    call_id: str | None = None,
    namespace: str | None = None,
    deltas: Sequence[str] | None = None,
    id_: str | None = None,
) -> Calls:
    """Call a function."""
    pieces = list(deltas) if deltas is not None else None
    return Calls(
        tool=tool,
        arguments={} if arguments is None else arguments,
        call_id=call_id,
        namespace=namespace,
        deltas=pieces,
        id=id_,
    )


def custom_call(
    tool: str,
    text: str,
    *,
    call_id: str | None = None,
    deltas: Sequence[str] | None = None,
    id_: str | None = None,
) -> CustomCall:
    """Call a free-text tool."""
    pieces = list(deltas) if deltas is not None else None
    return CustomCall(tool=tool, input=text, call_id=call_id, deltas=pieces, id=id_)


def plan(
    *steps: tuple[str, str] | str, explanation: str | None = None, call_id: str | None = None
) -> Calls:
    """Call `update_plan`; a bare step is pending, a pair is a step and its status."""
    pairs = [(step, "pending") if isinstance(step, str) else step for step in steps]
    arguments: dict[str, JsonValue] = {
        "plan": [{"step": step, "status": status} for step, status in pairs]
    }
    if explanation is not None:
        arguments["explanation"] = explanation
    return calls("update_plan", arguments, call_id=call_id)


def searches(query: str, *, id_: str | None = None) -> Searches:
    """Search the web."""
    return Searches(query=query, id=id_)


def gives(item: ModelItem) -> Gives:
    """Produce an item exactly as written."""
    return Gives(item=item)


def usage(
    input_tokens: int = 0,
    output_tokens: int = 0,
    *,
    cached: int = 0,
    cache_write: int = 0,
    reasoning: int = 0,
) -> Spends:
    """Report tokens at the end of the response."""
    return Spends(
        usage=ResponseUsage(
            input_tokens=input_tokens,
            cached_input_tokens=cached,
            cache_write_input_tokens=cache_write,
            output_tokens=output_tokens,
            reasoning_output_tokens=reasoning,
            total_tokens=input_tokens + output_tokens,
        )
    )


def reroutes(to_model: str, reason: str = "highRiskCyberActivity") -> Reroutes:
    """Respond with another model."""
    return Reroutes(to_model=to_model, reason=reason)


def limits(snapshot: JsonValue) -> ReportsLimits:
    """Report rate limits."""
    return ReportsLimits(snapshot=snapshot)


def fails(
    message: str = "scripted failure",
    *,
    info: CodexErrorInfo = "other",
    status: int | None = None,
    retry_after: float | None = None,
    is_retryable: bool = False,
) -> Fails:
    """Fail here: the request, if no other step comes before, otherwise the stream."""
    return Fails(
        message=message,
        info=info,
        status=status,
        retry_after=retry_after,
        is_retryable=is_retryable,
    )


def drops(message: str = "stream disconnected before completion") -> Drops:
    """Cut the stream here."""
    return Drops(message=message)


def waits(seconds: float) -> Waits:
    """Pause for some seconds."""
    return Waits(seconds=seconds)


def waits_for(event: asyncio.Event) -> WaitsFor:
    """Pause until the event is set."""
    return WaitsFor(event=event)


def ends(*, end_turn: bool | None) -> Ends:
    """Report at the end whether the turn is over."""
    return Ends(end_turn=end_turn)


class _JsonScript(Struct, frozen=True, forbid_unknown_fields=True):
    responses: list[list[PlainStep | str] | PlainStep | str]
    then: Afterwards = "fail"


def load_script(source: Path | str | bytes) -> Script:
    """Read a script from a file, or from JSON text (which starts with a bracket or a brace).

    Raises:
        ValueError: the file is missing or is not a script; the message says where.
    """
    try:
        text = _script_text(source)
        if text.lstrip()[:1] == b"[":
            text = b'{"responses": ' + text + b"}"
        script = msgspec.json.decode(text, type=_JsonScript)
    except (OSError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a script: {error}") from error
    return Script(responses=script.responses, then=script.then)


def _script_text(source: Path | str | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, str) and source.lstrip()[:1] in ("[", "{"):
        return source.encode()
    return Path(source).read_bytes()
