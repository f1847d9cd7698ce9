"""The messages of a realtime service: those that are sent, and what received ones mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from treadle.model.http.sse import is_excessive
from treadle.protocol.base import JsonValue
from treadle.protocol.realtime import ConversationTextRole, RealtimeOutputModality
from treadle.support.text.json_text import encode_json

Version: TypeAlias = Literal["v1", "v2"]
Role: TypeAlias = Literal["user", "assistant"]

MAX_VALUE_CHARS: Final = 64 * 1024
MAX_ID_CHARS: Final = 1024
RATE: Final = 24_000
"""The samples per second that a session is configured for."""

TASK_TOOL: Final = "background_agent"
SILENCE_TOOL: Final = "remain_silent"
_PCM: Final = {"type": "audio/pcm", "rate": RATE}


class UnreadableEvent(Exception):
    """The service sent something that is not an event, or an event without a part."""


class SessionOpened(Struct, frozen=True):
    """The service has accepted the session."""


class SpokenDelta(Struct, frozen=True):
    """More text that one side has said."""

    role: Role
    delta: str


class SpokenEnd(Struct, frozen=True):
    """All text of something that one side has said."""

    role: Role
    text: str


class SpokenAudio(Struct, frozen=True):
    """Speech of the model, in base64."""

    data: str
    rate: int = RATE
    channels: int = 1
    item_id: str | None = None
    samples: int | None = None


class AddedItem(Struct, frozen=True):
    """An item or an event that clients receive as it is."""

    item: Mapping[str, JsonValue]


class AgentTask(Struct, frozen=True):
    """A task for the agent of the thread."""

    id: str
    item_id: str
    input: str


class Silence(Struct, frozen=True):
    """The model has decided to say nothing, and waits for the output of that call."""

    call_id: str


class ServiceFault(Struct, frozen=True):
    """The service has reported an error."""

    message: str


ServiceEvent: TypeAlias = (
    SessionOpened
    | SpokenDelta
    | SpokenEnd
    | SpokenAudio
    | AddedItem
    | AgentTask
    | Silence
    | ServiceFault
)

_DELTAS: Final[dict[str, Role]] = {
    "conversation.input_transcript.delta": "user",
    "conversation.item.input_audio_transcription.delta": "user",
    "conversation.output_transcript.delta": "assistant",
    "response.output_text.delta": "assistant",
    "response.output_audio_transcript.delta": "assistant",
}
_ENDS: Final[dict[str, tuple[Role, str]]] = {
    "conversation.item.input_audio_transcription.completed": ("user", "transcript"),
    "response.output_text.done": ("assistant", "text"),
    "response.output_audio_transcript.done": ("assistant", "transcript"),
}
_AUDIO: Final = frozenset({"conversation.output_audio.delta", "response.output_audio.delta"})


def read_event(frame: bytes, version: Version) -> ServiceEvent | None:
    """Return what a message means; `None` if clients need not know it.

    Raises:
        UnreadableEvent: it is not a JSON object with a type, or a part of it has the wrong type.
    """
    if is_excessive(frame):
        raise UnreadableEvent("the realtime service sent a message with too many parts")
    try:
        event = msgspec.json.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableEvent(
            f"the realtime service sent a message that is not JSON: {error}"
        ) from None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise UnreadableEvent("the realtime service sent a message without a type")
    kind = event["type"]
    if kind in _DELTAS:
        return SpokenDelta(_DELTAS[kind], _text(event, "delta"))
    if kind in _ENDS:
        role, key = _ENDS[kind]
        return SpokenEnd(role, _text(event, key))
    if kind in _AUDIO:
        return _audio(event)
    return _other(event, kind, version)


def _audio(event: Mapping[str, JsonValue]) -> SpokenAudio:
    rate, channels = event.get("sample_rate", RATE), event.get("channels", 1)
    # Optional, as the length of the data says it too.
    samples = event.get("samples_per_channel")
    # A boolean is an `int`, too.
    if type(rate) is not int or type(channels) is not int or type(samples or 0) is not int:
        raise UnreadableEvent("the realtime service sent audio without a format")
    is_valid = 0 < rate < 2**32 and 0 < channels < 2**16 and 0 <= (samples or 0) < 2**32
    if not is_valid:
        raise UnreadableEvent("the realtime service sent audio in an impossible format")
    item_id = event.get("item_id")
    named = item_id if isinstance(item_id, str) else None
    return SpokenAudio(_text(event, "delta", limit=None), rate, channels, named, samples)


def _other(event: Mapping[str, JsonValue], kind: str, version: Version) -> ServiceEvent | None:
    if kind in ("session.updated", "session.created"):
        return SessionOpened() if kind == "session.updated" else None
    if kind == "conversation.item.added":
        return AddedItem(_object(event, "item"))
    if kind == "input_audio_buffer.speech_started":
        return AddedItem(event)
    if kind == "error":
        return ServiceFault(_text(_object(event, "error"), "message"))
    if version == "v1" and kind == "conversation.handoff.requested":
        ids = _id(event, "handoff_id"), _id(event, "item_id")
        return AgentTask(*ids, _text(event, "input_transcript"))
    if version == "v2" and kind == "conversation.item.done":
        return _call(_object(event, "item"))
    return None


def _call(item: Mapping[str, JsonValue]) -> AgentTask | Silence | None:
    """Return what a finished item requests, if it is a call of one of our tools."""
    if item.get("type") != "function_call":
        return None
    call_id = _id(item, "call_id")
    if item.get("name") == SILENCE_TOOL:
        return Silence(call_id)
    if item.get("name") != TASK_TOOL:
        return None
    try:
        arguments = json.loads(_text(item, "arguments"))
    except (ValueError, RecursionError) as error:
        raise UnreadableEvent(f"the arguments of {TASK_TOOL} are not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise UnreadableEvent(f"the arguments of {TASK_TOOL} are not an object")
    item_id = item.get("id")
    return AgentTask(
        call_id,
        item_id[:MAX_ID_CHARS] if isinstance(item_id, str) else "",
        _text(arguments, "prompt"),
    )


def _object(event: Mapping[str, JsonValue], key: str) -> Mapping[str, JsonValue]:
    value = event.get(key)
    if not isinstance(value, dict):
        raise UnreadableEvent(f"the realtime service sent an event without `{key}`")
    return value


def _id(event: Mapping[str, JsonValue], key: str) -> str:
    """Return an id, which an answer repeats: it cannot be shortened."""
    value = _text(event, key, limit=None)
    if len(value) > MAX_ID_CHARS:
        raise UnreadableEvent(f"the realtime service sent a `{key}` that is too long")
    return value


def _text(event: Mapping[str, JsonValue], key: str, *, limit: int | None = MAX_VALUE_CHARS) -> str:
    value = event.get(key)
    if not isinstance(value, str):
        raise UnreadableEvent(f"the realtime service sent an event without `{key}`")
    return value[:limit]


# -- messages to the service


def configure(
    version: Version, instructions: str, voice: str, modality: RealtimeOutputModality
) -> bytes:
    """Return the message that configures a session."""
    if version == "v1":
        audio: JsonValue = {"input": {"format": _PCM}, "output": {"voice": voice}}
        session: JsonValue = {"type": "quicksilver", "instructions": instructions, "audio": audio}
    else:
        session = {
            "type": "realtime",
            "instructions": instructions,
            "output_modalities": [modality],
            "audio": {
                "input": {
                    "format": _PCM,
                    "noise_reduction": {"type": "near_field"},
                    "transcription": {"model": "gpt-4o-mini-transcribe"},
                    "turn_detection": {
                        "type": "server_vad",
                        "interrupt_response": True,
                        "create_response": True,
                        "silence_duration_ms": 500,
                    },
                },
                "output": {"format": _PCM, "voice": voice},
            },
            "tools": _TOOLS,
            "tool_choice": "auto",
        }
    return encode_json({"type": "session.update", "session": session})


def audio_input(data: str) -> bytes:
    """Return the message with audio of the user."""
    return encode_json({"type": "input_audio_buffer.append", "audio": data})


def text_input(version: Version, role: ConversationTextRole, text: str) -> bytes:
    """Return the message with a text of the user, the developer or the assistant."""
    if version == "v2" and role == "user":
        text = f"[USER] {text}"
    service_role = "system" if version == "v2" and role == "developer" else role
    kind = "output_text" if role == "assistant" else "input_text"
    return _message(service_role, kind, text)


def report(version: Version, task_id: str | None, text: str) -> bytes:
    """Return the message with a text of the agent, which the model speaks or sums up."""
    if version == "v1":
        handoff = task_id or "treadle"
        event = {"type": "conversation.handoff.append", "handoff_id": handoff, "output_text": text}
        return encode_json(event)
    return _message("user", "input_text", f"[BACKEND] {text}")


def outputs(call_id: str, text: str, *, continues: bool) -> list[bytes]:
    """Return the messages that end a call of the model."""
    item = {"type": "function_call_output", "call_id": call_id, "output": text}
    ended = encode_json({"type": "conversation.item.create", "item": item})
    return [ended, encode_json({"type": "response.create"})] if continues else [ended]


def _message(role: str, kind: str, text: str) -> bytes:
    content = [{"type": kind, "text": text}]
    item = {"type": "message", "role": role, "content": content}
    return encode_json({"type": "conversation.item.create", "item": item})


_TOOLS: Final[JsonValue] = [
    {
        "type": "function",
        "name": TASK_TOOL,
        "description": "Hand a request of the user to the agent, in the user's own words. Use this "
        "by default. An idle agent starts a task and returns its result; a working one takes the "
        "request as guidance.",
        "parameters": {
            "type": "object",
            "properties": {"prompt": {"type": "string", "description": "The request of the user."}},
            "required": ["prompt"],
            "additionalProperties": False,
        },
    },
    {
        "type": "function",
        "name": SILENCE_TOOL,
        "description": "Say nothing, for example after a message that is only for information.",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
]
